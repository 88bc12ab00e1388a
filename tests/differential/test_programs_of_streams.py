"""Random programs on asyncio's streams: each read returns the same data, in the same turn, as on asyncio.

A task reads and writes by one script while the other end of a pair of Unix sockets sends, reads and leaves by another.
hotloop puts bytes into a StreamReader without the calls in between. Limits of every kind, a patched or subclassed
reader and a buffer that the program has exported could reveal that.
"""

import asyncio
import contextlib
import fractions
import socket

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import step
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="socketpair() is a TCP connection without Unix sockets"),
]

TURNS = 150  # the most that a program gets
LIMITS = [1, 7, 100, 2**16, 2**63 - 1, 2**64, float("inf"), 10.5, fractions.Fraction(41, 2), True]
MUCH = 600_000  # bytes; more than the kernel keeps between the two ends

sizes = st.integers(0, 60)
scripts = st.lists(
    st.one_of(
        step("read", sizes),
        step("read", st.just(-1)),
        step("readline"),
        step("readuntil", st.sampled_from([b"\n", b"ab", b"zz"])),
        step("readexactly", sizes),
        step("at_eof"),
        step("sleep", st.integers(1, 4)),
        step("write", sizes),
        step("write_much"),
        step("drain"),
        step("write_eof"),
        step("close"),
        step("wait_closed"),
        step("set_limit", st.sampled_from(LIMITS)),
        step("hold_buffer"),
        step("let_buffer_go"),
        step("patch", st.sampled_from(["feed_data", "feed_eof"])),
        step("timeout_read"),
    ),
    max_size=10,
)
peers = st.lists(
    st.one_of(
        step("peer_send", st.sampled_from([b"a", b"ab\n", b"\n\n", b"x" * 30, b"line\nhalf", b"zz", b"b" * 300])),
        step("peer_send", st.sampled_from([b"a", b"ab\n", b"\n\n", b"x" * 30, b"line\nhalf", b"zz", b"b" * 300])),
        step("peer_read"),
        step("peer_shut_down"),
        step("peer_close"),
        step("wait", st.integers(1, 5)),
    ),
    max_size=10,
)


class NotingReader(asyncio.StreamReader):
    """A subclass, whose methods must be called."""

    fed = 0

    def feed_data(self, data):
        self.fed += len(data)
        super().feed_data(data)


class Run:
    """One run of a script with one kind of reader."""

    def __init__(self, loop, script, peers, limit, reader_class):
        self.loop = loop
        self.script = script
        self.peers = list(peers)
        self.trace = []
        self.turn = self.waiting = self.fed_by_patch = 0
        self.held = []
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        loop.set_exception_handler(self.report)
        self.reader = reader_class(limit=limit, loop=loop)
        self.task = loop.create_task(self.run_script(ours))

    def note(self, *what):
        self.trace.append((self.turn, *what))

    def report(self, loop, context):
        self.note("reported", context["message"].split(":")[0][:30], repr(type(context.get("exception"))))

    async def run_script(self, ours):
        self.protocol = asyncio.StreamReaderProtocol(self.reader, loop=self.loop)
        self.transport, _ = await self.loop.create_connection(lambda: self.protocol, sock=ours)
        self.writer = asyncio.StreamWriter(self.transport, self.protocol, self.reader, self.loop)
        for one in self.script:
            try:
                result = getattr(self, one.name)(*([] if one.argument is None else [one.argument]))
                if asyncio.iscoroutine(result):
                    result = await result
            except Exception as error:
                self.note(one.name, type(error).__name__, str(error)[:40])
            else:
                self.note(one.name, result if isinstance(result, (bytes, bool)) else None)
        self.note("ends", len(self.reader._buffer), getattr(self.reader, "fed", None), self.fed_by_patch)

    def take_turn(self):
        self.turn += 1
        if self.turn > TURNS or (self.task.done() and not self.peers):
            self.loop.stop()
            return
        self.loop.call_soon(self.take_turn)
        if self.waiting:
            self.waiting -= 1
        elif self.peers:
            one = self.peers.pop(0)
            if one.name == "wait":
                self.waiting = one.argument
            else:
                with contextlib.suppress(OSError):
                    getattr(self, one.name)(*([] if one.argument is None else [one.argument]))

    def play(self):
        self.loop.call_soon(self.take_turn)
        self.loop.run_forever()
        self.trace.append("finish")
        self.let_buffer_go()
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.task)
        self.peer.close()
        with contextlib.suppress(AttributeError):  # before CPython 3.14.10 asyncio's fails once the connection is lost
            self.transport.abort()
        for _ in range(3):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        with contextlib.suppress(Exception):  # the connection's error, which would be reported if nothing retrieved it
            self.loop.run_until_complete(self.writer.wait_closed())
        return self.trace

    # -- the task ------------------------------------------------------------------------------------------------------

    def read(self, size):
        return self.reader.read(size)

    def readline(self):
        return self.reader.readline()

    def readuntil(self, separator):
        return self.reader.readuntil(separator)

    def readexactly(self, size):
        return self.reader.readexactly(size)

    async def timeout_read(self):
        """Cancel a read in the turn after the next."""
        task = asyncio.ensure_future(self.reader.read(5))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        return await task if not task.cancelling() else await asyncio.gather(task, return_exceptions=True) and None

    def at_eof(self):
        return self.reader.at_eof()

    async def sleep(self, turns):
        for _ in range(turns):
            await asyncio.sleep(0)

    def write(self, size):
        self.write_all(b"w" * size)
        return self.writer.is_closing()

    def write_much(self):
        self.write_all(b"m" * MUCH)

    def write_all(self, data):
        # Once asyncio's transport has sent its last byte after close(), its write() fails because it has no socket.
        lost = self.protocol._closed.done()
        with contextlib.suppress(AttributeError) if lost else contextlib.nullcontext():
            self.writer.write(data)

    async def drain(self):
        # Not forever, if the other end does not read.
        await asyncio.wait_for(self.writer.drain(), None if self.transport.get_write_buffer_size() == 0 else 0)

    def write_eof(self):
        self.writer.write_eof()

    def close(self):
        self.writer.close()

    async def wait_closed(self):
        if self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            await self.writer.wait_closed()

    def set_limit(self, limit):
        self.reader._limit = limit

    def hold_buffer(self):
        self.held.append(memoryview(self.reader._buffer))

    def let_buffer_go(self):
        while self.held:
            self.held.pop().release()

    def patch(self, name):
        stage, original = self, getattr(self.reader, name)

        def replacement(*arguments):
            stage.fed_by_patch += 1
            return original(*arguments)

        setattr(self.reader, name, replacement)

    # -- the other end -------------------------------------------------------------------------------------------------

    def peer_send(self, data):
        self.peer.send(data)

    def peer_read(self):
        got = 0
        with contextlib.suppress(OSError):
            while data := self.peer.recv(1 << 20):
                got += len(data)
        self.note("peer read", got > 0)

    def peer_shut_down(self):
        self.peer.shutdown(socket.SHUT_WR)

    def peer_close(self):
        self.peer.close()


def traced(implementation, *arguments):
    loop = implementation.new_event_loop()
    try:
        return Run(loop, *arguments).play()
    finally:
        loop.close()


@hypothesis.given(
    script=scripts,
    peers=peers,
    limit=st.sampled_from(LIMITS),
    reader_class=st.sampled_from([asyncio.StreamReader, asyncio.StreamReader, NotingReader]),
)
def test_any_program_of_streams_is_asyncios(load_implementation, impl, asyncio_log, script, peers, limit, reader_class):
    actual = traced(impl, script, peers, limit, reader_class)
    expected = traced(load_implementation("asyncio"), script, peers, limit, reader_class)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected
