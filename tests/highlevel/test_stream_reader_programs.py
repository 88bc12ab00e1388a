"""asyncio.StreamReader in random programs: the compiled one does what asyncio's own does."""

import asyncio
import re

import hypothesis
from hypothesis import strategies
from support.comparing import same_on_both
from support.overriding import module_with, overrides
from support.reader_states import Pausable, state_of
from support.task_programs import TaskPlayer

pieces = strategies.lists(strategies.sampled_from([b"a", b"ab", b"\n", b"\r\n", b"--"]), max_size=6).map(b"".join)
actions = strategies.one_of(
    strategies.tuples(strategies.just("feed"), pieces),
    strategies.tuples(strategies.just("feed_bytearray"), pieces),
    strategies.tuples(strategies.sampled_from(["read", "readexactly"]), strategies.integers(-2, 12)),
    strategies.tuples(strategies.just("readuntil"), strategies.sampled_from([b"\n", b"\r\n", b"--", b"ba", b""])),
    strategies.tuples(strategies.sampled_from(["readline", "__anext__", "feed_eof", "inspect", "set_exception"])),
    strategies.tuples(strategies.sampled_from(["pause", "cancel", "hold", "release"]), strategies.integers(0, 4)),
)
tasks_of_a_program = strategies.lists(strategies.lists(actions, max_size=8), min_size=1, max_size=4)


class Player(TaskPlayer):
    def __init__(self, module, limit, transport):
        super().__init__()
        self.views = []
        self.reader = module.StreamReader(limit, asyncio.get_running_loop())
        if transport is not None:
            self.reader.set_transport(Pausable(self.log, can_pause=transport))

    async def play(self, program):
        await self.play_tasks(program, 60)
        await self.end_tasks()
        self.release()
        self.log.append(state_of(self.reader))
        return self.log

    def look(self):
        return (state_of(self.reader),)

    def release(self):
        while self.views:
            self.views.pop().release()

    async def act(self, action, *arguments):
        reader = self.reader
        match action:
            case "feed":
                return reader.feed_data(*arguments)
            case "feed_bytearray":
                return reader.feed_data(bytearray(*arguments))
            case "feed_eof":
                return reader.feed_eof()
            case "set_exception":
                return reader.set_exception(OSError("set"))
            case "hold":
                return self.views.append(memoryview(reader._buffer))
            case "release":
                return self.release()
            case "inspect":
                return re.sub(r"waiter=<.*?>( |$)", "", repr(reader)), repr(reader.exception()), reader.at_eof()
            case _:
                result = await getattr(reader, action)(*arguments)
                assert type(result) is bytes
                return result


@hypothesis.settings(max_examples=300, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    program=tasks_of_a_program,
    limit=strategies.sampled_from([1, 3, 5, 100]),
    transport=strategies.sampled_from([None, True, False]),
)
def test_random_programs(loop, program, limit, transport):
    async def run(module):
        return await Player(module, limit, transport).play(program)

    same_on_both(loop, run)


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    program=tasks_of_a_program,
    limit=strategies.sampled_from([1, 3, 5, 100]),
    transport=strategies.sampled_from([None, True, False]),
    chosen=overrides,
)
def test_random_programs_of_subclasses(loop, program, limit, transport, chosen):
    async def run(module):
        calls = []
        changed = module_with(module, calls, {"StreamReader": chosen})
        return await Player(changed, limit, transport).play(program), calls

    same_on_both(loop, run)
