"""asyncio's streams on the loop's own transports: the reader behaves as asyncio's, however the bytes get into it."""

import asyncio
import contextlib
import gc
import re
import sys

import pytest
from support.endpoints import until
from support.stream_connections import MORE_THAN_FITS, connected_sockets, reset
from support.stream_readers import LIMIT, stream_connection

CALLS = [
    ("read", [5]),
    ("read", [1000]),
    ("read", [-1]),
    ("read", [0]),
    ("readline", []),
    ("readexactly", [5]),
    ("readexactly", [0]),
    ("readexactly", [1000]),
    ("readuntil", [b"\r\n"]),
    ("readuntil", [b"no such thing"]),
    ("readuntil", [b"e"]),
]
TEXTS = [b"", b"hello\r\nworld\r\n", b"no line end", b"\n", b"l" * (LIMIT + 1) + b"\nafter", b"l" * 5 * LIMIT]


async def results(call, arguments, text, pieces):
    """The outcomes of repeated calls until the end; exceptions with their contents."""
    found = []
    async with stream_connection() as wire:

        async def feed():
            size = max(1, -(-len(text) // pieces))
            for begin in range(0, len(text), size):
                wire.send(text[begin : begin + size])
                await asyncio.sleep(0.001 if pieces > 1 else 0)
            wire.peer.shutdown(1)

        feeding = asyncio.ensure_future(feed())
        if pieces == 1:
            await feeding
        for _ in range(4 if call != "read" else 1):
            try:
                data = getattr(wire.reader, call)(*arguments)
                found.append(await data)
            except asyncio.LimitOverrunError as error:
                found.append((str(error), error.consumed))
                found.append(await wire.reader.readexactly(error.consumed))
            except asyncio.IncompleteReadError as error:
                found.append((error.partial, error.expected))
            except ValueError as error:
                found.append(str(error))
        await feeding
        found.append(wire.reader.at_eof())
    return found


@pytest.mark.parametrize("text", TEXTS, ids=[str(number) for number in range(len(TEXTS))])
@pytest.mark.parametrize(("call", "arguments"), CALLS)
def test_reading_calls(load_implementation, impl, call, arguments, text):
    """All data waits in the kernel, so that the outcome depends on nothing else."""
    expected = load_implementation("asyncio").run(results(call, arguments, text, 1))
    assert impl.run(results(call, arguments, text, 1)) == expected


@pytest.mark.parametrize(("call", "arguments"), [case for case in CALLS if case not in (CALLS[0], CALLS[1])])
def test_reading_calls_as_data_trickles_in(load_implementation, impl, call, arguments):
    text = b"hello\r\nworld\r\nand the rest"
    expected = load_implementation("asyncio").run(results(call, arguments, text, 1))
    if call == "readexactly":
        assert impl.run(results(call, arguments, text, len(text))) == expected
    else:
        assert impl.run(results(call, arguments, text, len(text)))[:-1] == expected[:-1]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="readuntil() takes several separators since CPython 3.13")
def test_reading_until_one_of_several(impl):
    async def main():
        async with stream_connection() as wire:
            wire.send(b"one;two,three;")
            assert await wire.reader.readuntil((b";", b",")) == b"one;"
            assert await wire.reader.readuntil((b";", b",")) == b"two,"
            assert await wire.reader.readuntil((b";", b",")) == b"three;"

    impl.run(main())


def test_reading_line_by_line(impl):
    async def main():
        async with stream_connection(kind="pair") as wire:
            wire.send(b"a\nb\n\nc")
            wire.peer.close()
            assert [line async for line in wire.reader] == [b"a\n", b"b\n", b"\n", b"c"]
            assert await wire.reader.read() == b""
            assert wire.reader.at_eof()

    impl.run(main())


def test_pausing_at_twice_the_limit(impl):
    """Reading pauses only beyond twice the limit, and resumes when no more than the limit is left."""

    async def main():
        async with stream_connection() as wire:
            transport = wire.writer.transport
            wire.send(b"x" * 2 * LIMIT)
            await wire.reader.readexactly(1)
            assert transport.is_reading()
            wire.send(b"yy")
            await until(lambda: not transport.is_reading())
            wire.send(b"z" * LIMIT)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await wire.reader.readexactly(LIMIT)
            assert not transport.is_reading(), "there is still one more than the limit"
            await wire.reader.readexactly(1)
            assert transport.is_reading()
            assert await wire.reader.readexactly(LIMIT) == b"x" * (LIMIT - 2) + b"yy"
            assert await wire.reader.readexactly(LIMIT) == b"z" * LIMIT

    impl.run(main())


def test_a_flood_is_held_in_the_kernel(impl):
    """If the program does not read, the reader takes a bounded part of it, and later returns all of it."""

    async def main():
        async with stream_connection() as wire:
            total = 0
            flood = bytes(range(251)) * 400
            for _ in range(100):
                with contextlib.suppress(BlockingIOError):
                    total += wire.peer.send(memoryview(flood)[total % 251 : -251])
                await asyncio.sleep(0)
            assert not wire.writer.transport.is_reading()
            data = await wire.reader.readexactly(total)
            assert data == (flood * (total // len(flood) + 1))[:total]

    impl.run(main())


def test_the_end_after_pausing(impl):
    async def main():
        async with stream_connection() as wire:
            wire.send(b"x" * 1000)
            wire.peer.close()
            await until(lambda: not wire.writer.transport.is_reading())
            assert await wire.reader.read() == b"x" * 1000

    impl.run(main())


def test_a_reset(impl):
    """Every waiting coroutine gets the exception, and so do later ones."""

    async def main():
        async with stream_connection() as wire:
            wire.writer.write(bytes(MORE_THAN_FITS))
            reading = asyncio.ensure_future(wire.reader.read(10))
            draining = asyncio.ensure_future(wire.writer.drain())
            await asyncio.sleep(0)
            reset(wire.peer)
            for waiting in (reading, draining, wire.writer.wait_closed(), wire.reader.read(10), wire.writer.drain()):
                with pytest.raises((ConnectionResetError, BrokenPipeError)):
                    await waiting
            assert isinstance(wire.reader.exception(), ConnectionResetError | BrokenPipeError)
            assert not wire.reader.at_eof()

    impl.run(main())


def test_data_before_a_reset_is_lost_to_an_exception(impl):
    """The reader keeps its data, but as in asyncio a read raises first."""

    async def main():
        async with stream_connection() as wire:
            wire.send(b"line\n")
            await until(lambda: wire.reader._buffer)
            reset(wire.peer)
            await until(lambda: wire.reader.exception())
            with pytest.raises(ConnectionResetError):
                await wire.reader.readline()

    impl.run(main())


@pytest.mark.parametrize("call", ["read", "readline", "readexactly", "readuntil"])
def test_two_coroutines_cannot_wait_at_once(impl, call):
    async def main():
        async with stream_connection() as wire:
            arguments = [5] if call in ("read", "readexactly") else []
            waiting = asyncio.ensure_future(getattr(wire.reader, call)(*arguments))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another coroutine is already waiting for incoming data"):
                await getattr(wire.reader, call)(*arguments)
            wire.send(b"abcd\n")
            assert await waiting == b"abcd\n"

    impl.run(main())


def test_draining(impl):
    async def main():
        async with stream_connection() as wire:
            await wire.writer.drain()
            wire.writer.writelines([b"ab", b"cd"])
            await wire.writer.drain()
            wire.writer.write(bytes(MORE_THAN_FITS))
            draining = [asyncio.ensure_future(wire.writer.drain()) for _ in range(3)]
            await asyncio.sleep(0.001)
            assert not any(task.done() for task in draining)
            received = 0
            while received < MORE_THAN_FITS + 4:
                with contextlib.suppress(BlockingIOError):
                    received += len(wire.peer.recv(1 << 20))
                await asyncio.sleep(0)
            await asyncio.gather(*draining)
            assert not wire.writer.is_closing()
            assert wire.writer.can_write_eof()
            wire.writer.write_eof()
            wire.writer.close()
            assert wire.writer.is_closing()
            await wire.writer.wait_closed()
            with pytest.raises(ConnectionResetError):
                await wire.writer.drain()

    impl.run(main())


def test_feeding_by_hand_among_what_arrives(impl):
    async def main():
        async with stream_connection() as wire:
            wire.reader.feed_data(b"by hand ")
            wire.send(b"from the wire ")
            await until(lambda: len(wire.reader._buffer) == 22)
            wire.reader.feed_data(b"and again")
            assert await wire.reader.readexactly(31) == b"by hand from the wire and again"
            wire.reader.feed_eof()
            assert await wire.reader.read() == b""
            with pytest.raises(AssertionError, match="feed_data after feed_eof"):
                wire.reader.feed_data(b"too late")

    impl.run(main())


async def hand_fed_eof():
    """The outcome of data that arrives after the program has called feed_eof()."""
    async with stream_connection() as wire:
        wire.reader.feed_eof()
        wire.send(b"after the end")
        await until(lambda: wire.writer.is_closing())
        reports = [(report["message"], type(report["exception"]), str(report["exception"])) for report in wire.reports]
        wire.reports.clear()
        await until(wire.reader.exception)
        return reports, type(wire.reader.exception())


def test_data_after_a_hand_fed_end(load_implementation, impl):
    expected = load_implementation("asyncio").run(hand_fed_eof())
    assert expected[0] == [
        ("Fatal error: protocol.data_received() call failed.", AssertionError, "feed_data after feed_eof")
    ]
    assert impl.run(hand_fed_eof()) == expected


def test_an_exception_set_by_hand(impl):
    async def main():
        async with stream_connection() as wire:
            reading = asyncio.ensure_future(wire.reader.read(10))
            await asyncio.sleep(0)
            wire.reader.set_exception(ZeroDivisionError())
            with pytest.raises(ZeroDivisionError):
                await reading
            wire.send(b"ignored")
            with pytest.raises(ZeroDivisionError):
                await wire.reader.read(10)

    impl.run(main())


async def exported_buffer():
    """The outcome of data that arrives while the reader's buffer cannot grow."""
    async with stream_connection() as wire:
        wire.send(b"x")
        await until(lambda: wire.reader._buffer)
        with memoryview(wire.reader._buffer):
            wire.send(b"no room")
            await until(lambda: wire.writer.is_closing())
            await until(lambda: wire.reader.exception())
        reports = [(report["message"], type(report["exception"])) for report in wire.reports]
        wire.reports.clear()
        return reports, bytes(wire.reader._buffer), type(wire.reader.exception())


def test_a_readers_buffer_that_is_exported(load_implementation, impl):
    expected = load_implementation("asyncio").run(exported_buffer())
    assert expected == ([("Fatal error: protocol.data_received() call failed.", BufferError)], b"x", BufferError)
    assert impl.run(exported_buffer()) == expected


def test_the_bytes_of_a_read_are_the_callers(impl):
    """A view of returned data does not change when more arrives."""

    async def main():
        async with stream_connection() as wire:
            wire.send(b"first")
            view = memoryview(await wire.reader.read(100))
            wire.send(b"other")
            assert await wire.reader.readexactly(5) == b"other"
            assert view == b"first" and view.readonly

    impl.run(main())


def test_a_reader_without_references(impl):
    """Its protocol refers to it weakly: later data is dropped, and the connection stays open."""

    async def main():
        loop = asyncio.get_running_loop()
        ours, peer = connected_sockets("tcp")
        made = []

        def factory():
            reader = asyncio.StreamReader(loop=loop)
            made.append(asyncio.StreamReaderProtocol(reader, loop=loop))
            return made[0]

        transport, _ = await loop.create_connection(factory, sock=ours)
        gc.collect()
        peer.send(b"to nobody")
        for _ in range(5):
            await asyncio.sleep(0)
        transport.write(b"still here")
        assert await loop.sock_recv(peer, 10) == b"still here"
        transport.abort()
        await made[0]._get_close_waiter(None)
        peer.close()

    impl.run(main())


def test_another_streams_protocol_takes_over(impl):
    async def main():
        loop = asyncio.get_running_loop()
        async with stream_connection() as wire:
            wire.send(b"one")
            assert await wire.reader.read(100) == b"one"
            reader = asyncio.StreamReader(limit=LIMIT, loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            first = wire.writer.transport.get_protocol()
            protocol.connection_made(wire.writer.transport)
            wire.writer.transport.set_protocol(protocol)
            wire.send(b"two")
            assert await reader.read(100) == b"two"
            wire.writer.transport.set_protocol(first)
            wire.send(b"three")
            assert await wire.reader.read(100) == b"three"

    impl.run(main())


def test_a_server_whose_callback_is_a_plain_function(impl):
    async def main():
        streams = []
        async with await asyncio.start_server(lambda *pair: streams.append(pair), "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            while not streams:
                await asyncio.sleep(0.001)
            ((their_reader, their_writer),) = streams
            assert type(their_reader) is type(reader) is asyncio.StreamReader
            writer.write(b"there")
            assert await their_reader.readexactly(5) == b"there"
            their_writer.write(b"and back")
            their_writer.close()
            assert await reader.read() == b"and back"
            writer.close()
            await writer.wait_closed()
            await their_writer.wait_closed()

    impl.run(main())


async def failing_server():
    """The reports to the exception handler when a server's callback fails, and the data that the client gets."""
    loop = asyncio.get_running_loop()
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))

    async def serve(reader, writer):
        await reader.readline()
        raise ZeroDivisionError

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"go\n")
        if sys.version_info >= (3, 12):  # before, the connection stays open
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)
        for _ in range(3):
            await asyncio.sleep(0.001)
    gc.collect()
    return [(re.sub("exception was never.*", "", one["message"]), sorted(one)) for one in reports]


def test_a_server_whose_callback_fails(load_implementation, impl):
    expected = load_implementation("asyncio").run(failing_server())
    assert impl.run(failing_server()) == expected


def test_big_transfers_both_ways_at_once(impl):
    total = 8 << 20

    async def send(writer, letter):
        for _ in range(64):
            writer.write(letter * (total // 64))
            await writer.drain()
        writer.write_eof()

    async def receive(reader, letter):
        count = 0
        while data := await reader.read(1 << 16):
            assert data.strip(letter) == b""
            count += len(data)
        return count

    async def serve(reader, writer):
        counts = await asyncio.gather(receive(reader, b"c"), send(writer, b"s"))
        served.set_result(counts[0])
        writer.close()
        await writer.wait_closed()

    async def main():
        nonlocal served
        served = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            counts = await asyncio.gather(receive(reader, b"s"), send(writer, b"c"))
            assert (counts[0], await served) == (total, total)
            writer.close()
            await writer.wait_closed()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)

    served = None
    impl.run(main())
