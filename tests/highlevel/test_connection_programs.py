"""Subclasses of asyncio's streams on a real connection, in random programs: the transport calls what asyncio's calls,
whatever methods a subclass, an object or a later patch replaces."""

import asyncio
import contextlib
import socket

import hypothesis
from hypothesis import strategies
from support.comparing import on_both_loops, same_on_both, turns
from support.overriding import module_with, overrides
from support.reader_states import state_of
from support.task_programs import TaskPlayer

pytestmark = on_both_loops

actions = strategies.one_of(
    strategies.tuples(strategies.just("send"), strategies.sampled_from([b"a", b"ab\n", b"\n", b"--", b"0123456789"])),
    strategies.tuples(strategies.sampled_from(["read", "readexactly"]), strategies.integers(0, 12)),
    strategies.tuples(strategies.just("write"), strategies.sampled_from([1, 1000, 1_000_000])),
    strategies.tuples(
        strategies.sampled_from(["readline", "readuntil", "drain", "receive", "shut", "close", "wait_closed"])
    ),
    strategies.tuples(strategies.sampled_from(["pause", "pause", "cancel"]), strategies.integers(0, 5)),
)
tasks_of_a_program = strategies.lists(strategies.lists(actions, max_size=8), min_size=1, max_size=3)
chosen_overrides = strategies.dictionaries(
    strategies.sampled_from(["StreamReader", "StreamReaderProtocol", "StreamWriter"]), overrides
)


class Player(TaskPlayer):
    """The other end of the connection is a plain socket."""

    def __init__(self, module, ours, peer):
        super().__init__()
        self.module = module
        self.ours = ours
        self.peer = peer

    async def play(self, limit, program):
        loop = asyncio.get_running_loop()
        self.reader = self.module.StreamReader(limit=limit, loop=loop)
        protocol = self.module.StreamReaderProtocol(self.reader, loop=loop)
        transport, _ = await loop.create_connection(lambda: protocol, sock=self.ours)
        self.writer = self.module.StreamWriter(transport, protocol, self.reader, loop)
        await self.play_tasks(program, 40)
        transport.abort()
        await self.end_tasks()
        await turns(3)
        protocol._closed.cancel()
        return self.log, state_of(self.reader)

    def look(self):
        return state_of(self.reader), self.writer.is_closing()

    async def act(self, action, *arguments):
        match action:
            case "send":
                return self.peer.send(*arguments)
            case "shut":
                return self.peer.shutdown(socket.SHUT_WR)
            case "receive":
                return len(self.peer.recv(10_000_000))
            case "write":
                return self.writer.write(bytes(*arguments))
            case "close":
                return self.writer.close()
            case "drain" | "wait_closed":
                return await getattr(self.writer, action)()
            case _:
                return await getattr(self.reader, action)(*arguments)


@hypothesis.settings(max_examples=100, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program, limit=strategies.sampled_from([1, 4, 100]), chosen=chosen_overrides)
def test_random_programs_of_subclasses(loop, asyncio_log, program, limit, chosen):
    async def run(module):
        calls = []
        ours, peer = socket.socketpair()
        with contextlib.closing(ours), contextlib.closing(peer):
            for each in (ours, peer):
                each.setblocking(False)
            found = await Player(module_with(module, calls, chosen), ours, peer).play(limit, program)
        return found, calls, asyncio_log.take()

    same_on_both(loop, run)
