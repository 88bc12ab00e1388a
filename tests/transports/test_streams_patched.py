"""Programs change asyncio's streams in every way that Python allows. Each change must take effect, whatever short cut
the bytes take into an unchanged reader."""

import asyncio
import socket
from fractions import Fraction

import pytest
from support.endpoints import close, datagram_sockets, pipe_files, until
from support.recording import DatagramRecorder, Recorder
from support.stream_readers import stream_connection


class LoudReader(asyncio.StreamReader):
    def feed_data(self, data):
        super().feed_data(data.upper())

    ended = False

    def feed_eof(self):  # the end of the connection counts as an end, too
        if not self.ended:
            super().feed_data(b"!")
        self.ended = True
        super().feed_eof()


class LoudProtocol(asyncio.StreamReaderProtocol):
    def data_received(self, data):
        super().data_received(data.upper())

    def eof_received(self):
        super().data_received(b"!")
        return super().eof_received()


async def answer_of(wire):
    wire.send(b"quiet")
    wire.peer.shutdown(1)
    return await wire.reader.read()


def test_a_subclass_of_the_reader(impl):
    async def main():
        async with stream_connection(make_reader=LoudReader) as wire:
            assert await answer_of(wire) == b"QUIET!"

    impl.run(main())


def test_a_subclass_of_the_protocol(impl):
    async def main():
        async with stream_connection(make_protocol=LoudProtocol) as wire:
            assert await answer_of(wire) == b"QUIET!"

    impl.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("target", ["reader", "protocol"])
def test_methods_patched_on_an_instance(impl, target, when):
    async def main():
        async with stream_connection() as wire:
            if when == "after":
                wire.send(b"calm ")
                await until(lambda: wire.reader._buffer)
            subject = wire.reader if target == "reader" else wire.writer.transport.get_protocol()
            name = "feed_data" if target == "reader" else "data_received"
            original = getattr(subject, name)
            setattr(subject, name, lambda data: original(data.upper()))
            assert await answer_of(wire) == (b"QUIET" if when == "before" else b"calm QUIET")

    impl.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("class_", "name"), [(asyncio.StreamReader, "feed_data"), (asyncio.StreamReaderProtocol, "data_received")]
)
def test_methods_patched_on_the_class(impl, monkeypatch, class_, name, when):
    original = getattr(class_, name)

    async def main():
        async with stream_connection() as wire:
            if when == "after":
                wire.send(b"calm ")
                await until(lambda: wire.reader._buffer)
            monkeypatch.setattr(class_, name, lambda self, data: original(self, data.upper()))
            try:
                assert await answer_of(wire) == (b"QUIET" if when == "before" else b"calm QUIET")
            finally:
                monkeypatch.undo()
            async with stream_connection() as other:
                assert await answer_of(other) == b"quiet"

    impl.run(main())


def test_a_patched_feed_eof(impl, monkeypatch):
    original = asyncio.StreamReader.feed_eof
    seen = []

    async def main():
        async with stream_connection() as wire:
            monkeypatch.setattr(asyncio.StreamReader, "feed_eof", lambda self: seen.append(1) or original(self))
            assert await answer_of(wire) == b"quiet"

    impl.run(main())
    assert seen


def test_a_patched_pause_reading(impl):
    """A reader pauses its transport by calling it, so a stand-in for the transport is called."""

    class Standing:
        paused = 0

        def __init__(self, transport):
            self.transport = transport

        def pause_reading(self):
            self.paused += 1
            self.transport.pause_reading()

        def __getattr__(self, name):
            return getattr(self.transport, name)

    async def main():
        async with stream_connection() as wire:
            stand_in = wire.reader._transport = Standing(wire.writer.transport)
            wire.send(b"x" * 1000)
            await until(lambda: not wire.writer.transport.is_reading())
            assert stand_in.paused == 1
            assert await wire.reader.readexactly(1000) == b"x" * 1000

    impl.run(main())


@pytest.mark.parametrize("where", ["instance", "class"])
def test_a_patched_wake_up(impl, monkeypatch, where):
    """feed_data() wakes the reader through its method."""
    original = asyncio.StreamReader._wakeup_waiter
    woken = []

    def waking(reader):
        woken.append(bytes(reader._buffer))
        original(reader)

    async def main():
        async with stream_connection() as wire:
            if where == "class":
                monkeypatch.setattr(asyncio.StreamReader, "_wakeup_waiter", waking)
            else:
                wire.reader._wakeup_waiter = lambda: waking(wire.reader)
            wire.send(b"data")
            assert await wire.reader.readexactly(4) == b"data"
            monkeypatch.undo()
            wire.reader.__dict__.pop("_wakeup_waiter", None)

    impl.run(main())
    assert woken == [b"data"]


@pytest.mark.parametrize("target", ["reader", "protocol"])
def test_the_method_of_another_object(impl, target):
    """A method bound to another reader, or to another protocol, feeds that one."""

    async def main():
        async with stream_connection() as wire, stream_connection() as other:
            if target == "reader":
                wire.reader.feed_data = other.reader.feed_data
            else:
                others = other.writer.transport.get_protocol()
                wire.writer.transport.get_protocol().data_received = others.data_received
            wire.send(b"for the other")
            assert await other.reader.readexactly(13) == b"for the other"
            assert not wire.reader._buffer

    impl.run(main())


def test_a_protocol_that_becomes_another_class(impl):
    async def main():
        async with stream_connection() as wire:
            wire.send(b"calm ")
            await until(lambda: wire.reader._buffer)
            wire.writer.transport.get_protocol().__class__ = LoudProtocol
            assert await answer_of(wire) == b"calm QUIET!"

    impl.run(main())


def test_a_reader_that_is_found_in_another_way(impl):
    """asyncio calls any object in place of the weak reference to the reader."""

    async def main():
        async with stream_connection() as wire, stream_connection() as other:
            wire.writer.transport.get_protocol()._stream_reader_wr = lambda: other.reader
            wire.send(b"for the other")
            assert await other.reader.readexactly(13) == b"for the other"

    impl.run(main())


LARGE_LIMITS = [float("inf"), float("nan"), 500, 2**62, 2**63, 2**80]
SMALL_LIMITS = [499, 499.5, Fraction(999, 2), True, 0, -5, -(2**63), -(2**80)]


@pytest.mark.parametrize("limit", LARGE_LIMITS + SMALL_LIMITS, ids=str)
def test_a_limit_is_anything_that_compares(impl, limit):
    """Twice the limit is compared with the buffer's size, in Python's way."""

    async def main():
        async with stream_connection() as wire:
            wire.reader._limit = limit
            wire.send(b"x" * 1000)
            await until(lambda: len(wire.reader._buffer) == 1000)
            assert wire.writer.transport.is_reading() == (limit in LARGE_LIMITS)
            assert await wire.reader.readexactly(1000) == b"x" * 1000

    impl.run(main())


def test_an_infinite_limit_from_the_start(impl):
    async def main():
        async with stream_connection(limit=float("inf")) as wire:
            wire.send(b"a line\nthe rest")
            wire.peer.shutdown(1)
            assert await wire.reader.readline() == b"a line\n"
            assert await wire.reader.readexactly(8) == b"the rest"

    impl.run(main())


@pytest.mark.parametrize("limit", [None, "100"])
def test_a_limit_that_does_not_compare_ends_the_connection(impl, limit):
    async def main():
        async with stream_connection() as wire:
            wire.reader._limit = limit
            wire.send(b"x")
            await until(lambda: wire.reports)
            (report,) = wire.reports
            assert report["message"] == "Fatal error: protocol.data_received() call failed."
            assert type(report["exception"]) is TypeError
            with pytest.raises(TypeError) as caught:
                await wire.reader.read(1)
            assert caught.value is report["exception"]
            wire.reports.clear()

    impl.run(main())


@pytest.mark.parametrize("before", [1, 50_000])
def test_an_exported_buffer_ends_the_connection(impl, before):
    """The error is reported once, whether the bytes go through the loop's memory or, after a large read, straight into
    the reader's."""

    async def main():
        async with stream_connection(limit=1 << 20) as wire:
            wire.send(b"x" * before)
            await until(lambda: len(wire.reader._buffer) == before)
            with memoryview(wire.reader._buffer):
                wire.send(b"more")
                await until(lambda: wire.reports)
                (report,) = wire.reports
                assert report["message"] == "Fatal error: protocol.data_received() call failed."
                assert type(report["exception"]) is BufferError
                await until(lambda: wire.reader.exception() is report["exception"])
            assert wire.reader._buffer == b"x" * before
            assert wire.reports == [report]
            wire.reports.clear()

    impl.run(main())


@pytest.mark.parametrize("before", [1, 50_000])
def test_an_exported_buffer_does_not_matter_at_the_end(impl, before):
    async def main():
        async with stream_connection(limit=1 << 20) as wire:
            wire.send(b"x" * before)
            await until(lambda: len(wire.reader._buffer) == before)
            with memoryview(wire.reader._buffer):
                wire.peer.shutdown(1)
                await until(lambda: wire.reader._eof)
            assert await wire.reader.read() == b"x" * before

    impl.run(main())


def test_large_and_small_reads_in_turn(impl):
    """Room that a large read did not fill does not hinder a later read."""

    async def main():
        async with stream_connection(limit=1 << 20) as wire:
            expected = bytearray()
            for number, size in enumerate([50_000, 10, 60_000, 1, 40_000, 20_000, 3]):
                data = bytes([number]) * size
                wire.send(data)
                expected += data
                while len(wire.reader._buffer) < len(expected):
                    await asyncio.sleep(0.001)
                assert wire.reader._buffer == expected
                if number % 3 == 2:
                    assert await wire.reader.readexactly(len(expected) - 5) == expected[:-5]
                    del expected[:-5]

    impl.run(main())


@pytest.mark.only("c", reason="asyncio's own raise AttributeError in some versions")
@pytest.mark.parametrize("kind", ["stream", "datagram", "read pipe", "write pipe"])
def test_private_methods_after_the_end_raise_nothing(loop, kind):
    """asyncio's raise there, so programs replace them in its classes; hotloop's transports need no such patch."""

    async def main():
        if kind == "stream":
            ours, peer = socket.socketpair()
            transport, protocol = await loop.create_connection(Recorder, sock=ours)
        elif kind == "datagram":
            ours, peer = datagram_sockets()
            transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=ours)
        else:
            reading, writing = pipe_files()
            if kind == "read pipe":
                peer = writing
                transport, protocol = await loop.connect_read_pipe(Recorder, reading)
            else:
                peer = reading
                transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with peer:
            await close(transport)
            for _ in range(2):
                transport._fatal_error(OSError(), "late")
                transport._fatal_error(ZeroDivisionError())
                transport._force_close(None)
                transport._call_connection_lost(None)
        assert protocol.calls.count("connection_lost") == 1

    loop.run_until_complete(main())


@pytest.mark.parametrize("size", [10, 20_000])
def test_buffer_that_is_a_property(impl, size):
    # In a process of its own, which a mistake would crash.
    impl.run_script(
        f"""
import socket

data = b"x" * {size}
buffer = bytearray()
left = None     # how often the property gives a bytearray; None: always

def buffer_of(reader):
    global left
    if left is None:
        return buffer
    left -= 1
    return buffer if left >= 0 else [0.5] * 5

async def main(times):
    global left
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        transport = writer.transport
        for _ in range(3):
            # The transport learns how much comes at once.
            theirs.sendall(data)
            await reader.readexactly(len(data))
        left = times
        theirs.sendall(data)
        while not transport.is_closing() and left == times:
            await asyncio.sleep(0)
        left = None
        assert transport.is_closing() or bytes(buffer) == data
        buffer.clear()
        writer.close()

asyncio.StreamReader._buffer = property(buffer_of, lambda reader, value: None)
for times in range(1, 5):
    impl.run(main(times))
"""
    )
