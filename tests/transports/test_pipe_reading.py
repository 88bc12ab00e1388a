"""Read pipe transports: data, pausing, and the end."""

import asyncio
import contextlib
import os
import socket
import threading

import pytest
from support.endpoints import close, pipe_files, settle, until
from support.recording import Recorder

fcntl = pytest.importorskip("fcntl", reason="selector loops have no pipes on Windows")


def test_reading(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_read_pipe(Recorder, reading)
        assert protocol.events == ["connection_made"] and protocol.transport is transport
        with writing:
            for number in range(1, 10):
                writing.write(b"%d" % number)
                await until(lambda number=number: len(protocol.received) == number)
        await until(lambda: protocol.lost)
        assert protocol.received == b"123456789"
        assert protocol.events == ["connection_made", "eof_received", ("connection_lost", None)]
        assert reading.closed

    loop.run_until_complete(main())


def test_reading_much(loop):
    data = os.urandom(3_000_000)

    sizes = []

    class Sizes(Recorder):
        def data_received(self, data):
            super().data_received(data)
            sizes.append(len(data))

    async def main():
        reading, writing = pipe_files()
        _, protocol = await loop.connect_read_pipe(Sizes, reading)

        def write():
            with os.fdopen(os.dup(writing.fileno()), "wb") as file:
                file.write(data)
            writing.close()

        thread = threading.Thread(target=write)
        thread.start()
        await until(lambda: protocol.lost)
        thread.join()
        assert protocol.received == data
        assert max(sizes) <= 256 * 1024

    loop.run_until_complete(main())


def large_pipe():
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    return reading, writing


def socket_pair():
    return [end.detach() for end in socket.socketpair()]


@pytest.mark.parametrize(
    ("make_pair", "much"),
    [
        (socket_pair, 120_000),
        pytest.param(
            large_pipe,
            600_000,
            marks=pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the system sets the size of pipes"),
        ),
    ],
)
def test_much_after_little_comes_in_as_few_turns_as_on_asyncio(impl, load_implementation, make_pair, much):
    def sizes(implementation):
        loop = implementation.EventLoop()
        found = []

        class Sizes(Recorder):
            def data_received(self, data):
                super().data_received(data)
                found.append(len(data))

        async def main():
            reading, writing = make_pair()
            _, protocol = await loop.connect_read_pipe(Sizes, os.fdopen(reading, "rb", 0))
            data = os.urandom(much)
            with os.fdopen(writing, "wb", 0) as file:
                for size in (20_000, much):
                    assert file.write(data[:size]) == size
                    await until(lambda size=size: len(protocol.received) >= size)
                    assert protocol.received[-size:] == data[:size]
            await until(lambda: protocol.lost)
            return found

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    assert sizes(impl) == sizes(load_implementation("asyncio"))


def test_what_was_written_before_the_end_is_read(loop):
    async def main():
        reading, writing = pipe_files()
        writing.write(b"x" * 60_000)
        writing.close()
        _, protocol = await loop.connect_read_pipe(Recorder, reading)
        await until(lambda: protocol.lost)
        assert protocol.received == b"x" * 60_000
        assert protocol.events == ["connection_made", "eof_received", ("connection_lost", None)]

    loop.run_until_complete(main())


def test_pausing_and_resuming(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_read_pipe(Recorder, reading)
        assert transport.is_reading()
        for _ in range(2):
            transport.pause_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            before = bytes(protocol.received)
            writing.write(b"x" * 1000)
            await settle()
            assert protocol.received == before
            transport.resume_reading()
            transport.resume_reading()
            assert transport.is_reading()
            await until(lambda before=before: len(protocol.received) == len(before) + 1000)
        transport.pause_reading()
        writing.write(b"end")
        writing.close()
        await settle()
        assert not protocol.lost and "eof_received" not in protocol.events
        transport.resume_reading()
        await until(lambda: protocol.lost)
        assert protocol.received == b"x" * 2000 + b"end"

    loop.run_until_complete(main())


def test_pausing_in_data_received(loop):
    class Pausing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_read_pipe(Pausing, reading)
        with writing:
            writing.write(b"1")
            await until(lambda: protocol.received)
            writing.write(b"2")
            await settle()
            assert protocol.received == b"1"
            transport.resume_reading()
            await until(lambda: len(protocol.received) == 2)
            assert protocol.received == b"12"
            await close(transport)

    loop.run_until_complete(main())


def test_pausing_in_connection_made(loop):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    async def main():
        reading, writing = pipe_files()
        with writing:
            writing.write(b"x")
            transport, protocol = await loop.connect_read_pipe(Paused, reading)
            await settle()
            assert not protocol.received
            transport.resume_reading()
            await until(lambda: protocol.received == b"x")
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("inside", [True, False])
def test_closing_a_read_pipe(loop, inside):
    """Neither data nor an end of file is delivered after close()."""

    class Closing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.close()

    async def main():
        reading, writing = pipe_files()
        with writing:
            transport, protocol = await loop.connect_read_pipe(Closing if inside else Recorder, reading)
            writing.write(b"x")
            await until(lambda: protocol.received)
            transport.close()
            transport.close()
            assert transport.is_closing() and not transport.is_reading()
            with contextlib.suppress(BrokenPipeError):  # closed for good by now
                writing.write(b"late")
            await until(lambda: protocol.lost)
            transport.close()
            transport.pause_reading()
            transport.resume_reading()
            await settle()
            assert protocol.received == b"x"
            assert protocol.events == ["connection_made", ("connection_lost", None)]
            assert reading.closed
            with pytest.raises(BrokenPipeError):
                writing.write(b"x")

    loop.run_until_complete(main())


def test_what_waits_in_a_pipe_comes_before_the_end_of_another_that_is_closed_next(loop):
    """A program goes on with another pipe and closes the first. The first one's connection_lost() comes after the data
    of the second pipe, because asyncio polls for I/O in each iteration."""
    happened = []

    class Naming(Recorder):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def data_received(self, data):
            happened.append((self.name, data))

        def connection_lost(self, error):
            happened.append((self.name, "lost"))

    async def main():
        (first, first_end), (second, second_end) = os.pipe(), os.pipe()
        os.write(first_end, b"one")
        os.write(second_end, b"two")
        transport, _ = await loop.connect_read_pipe(lambda: Naming("first"), os.fdopen(first, "rb", 0))
        await until(lambda: happened)
        for _ in range(3000):  # by now the loop has long been polling for I/O without a result
            await asyncio.sleep(0)
        other, _ = await loop.connect_read_pipe(lambda: Naming("second"), os.fdopen(second, "rb", 0))
        transport.close()
        await until(lambda: len(happened) == 3)
        other.close()
        os.close(first_end)
        os.close(second_end)
        await until(lambda: len(happened) == 4)

    loop.run_until_complete(main())
    assert happened == [("first", b"one"), ("second", b"two"), ("first", "lost"), ("second", "lost")]
