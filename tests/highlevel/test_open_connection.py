"""open_connection(), start_server() and their Unix forms make the compiled classes; all else in them is asyncio's."""

import asyncio
import contextlib
import inspect
import socket
import subprocess
import sys
import types

import pytest
from support.comparing import BOTH, same_on_both

import hotloop.asyncio

NAMES = ("open_connection", "start_server", "open_unix_connection", "start_unix_server")


@contextlib.asynccontextmanager
async def served(module, serve, **options):
    """A server, and a reader and a writer that are connected to it."""
    server = await module.start_server(serve, "127.0.0.1", 0, **options)
    async with server:
        reader, writer = await module.open_connection(*server.sockets[0].getsockname(), **options)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize("name", NAMES)
def test_functions_look_like_asyncios(name):
    own, compiled = (getattr(module, name) for module in BOTH)
    assert isinstance(compiled, types.FunctionType)
    assert inspect.iscoroutinefunction(compiled)
    assert inspect.signature(compiled) == inspect.signature(own)
    for attribute in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__defaults__",
        "__kwdefaults__",
        "__code__",
    ):
        assert getattr(compiled, attribute) == getattr(own, attribute)
    assert inspect.getsource(compiled) == inspect.getsource(own)


def test_classes_of_both_ends(loop):
    async def use(module):
        ends = []

        async def serve(reader, writer):
            ends.append((reader, writer))
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with served(module, serve) as end:
            ends.append(end)
            end[1].write(b"hello\n")
            await end[1].drain()
            assert await end[0].read() == b"hello\n"
        for reader, writer in ends:
            assert type(reader) is module.StreamReader
            assert type(writer) is module.StreamWriter
            assert type(writer._protocol) is module.StreamReaderProtocol
        return [reader._limit for reader, _ in ends]

    same_on_both(loop, use)


def test_unix_sockets(loop, socket_path):
    async def use(module):
        socket_path.unlink(missing_ok=True)

        async def serve(reader, writer):
            async for line in reader:
                writer.writelines([line, b"!\n"])
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await module.start_unix_server(serve, socket_path, limit=50):
            reader, writer = await module.open_unix_connection(socket_path, limit=60)
            writer.write(b"one\ntwo")
            writer.write_eof()
            assert type(reader) is module.StreamReader
            found = [await reader.readuntil(b"!\n"), await reader.read(), reader._limit, reader.at_eof()]
            writer.close()
            await writer.wait_closed()
        return found

    assert same_on_both(loop, use) == [b"one\n!\n", b"two!\n", 60, True]


@pytest.mark.parametrize("limit", [1, 10, 2**16, 2**70])
def test_limit(loop, limit):
    async def use(module):
        async def serve(reader, writer):
            try:
                writer.write(await reader.readline())
            except ValueError as error:
                writer.write(str(error).encode())
            writer.close()
            await writer.wait_closed()

        async with served(module, serve, limit=limit) as (reader, writer):
            writer.write(b"a line of 21 letters\n")
            return await reader.read()

    same_on_both(loop, use)


def test_large_data_both_ways(loop):
    data = bytes(range(256)) * 8192

    async def use(module):
        async def serve(reader, writer):
            while piece := await reader.read(50000):
                writer.write(piece)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async def send(writer):
            for start in range(0, len(data), 100_000):
                writer.write(data[start : start + 100_000])
                await writer.drain()
            writer.write_eof()

        async with served(module, serve, limit=1000) as (reader, writer):
            sending = asyncio.ensure_future(send(writer))
            found = [await reader.readexactly(100_000), await reader.readuntil(b"\xfe\xff"), await reader.read()]
            await sending
        assert b"".join(found) == data
        return len(found[1])

    same_on_both(loop, use)


def test_connection_that_is_reset(loop):
    async def use(module):
        async def serve(reader, writer):
            await reader.readline()
            linger = b"\1\0\0\0\0\0\0\0"
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

        found = []
        async with served(module, serve) as (reader, writer):
            writer.write(b"line\n")
            for method in (reader.readline, reader.readline, writer.drain, writer.wait_closed):
                try:
                    found.append(await method())
                except OSError as error:
                    found.append((type(error).__name__, str(error)))
        return found

    same_on_both(loop, use)


def test_callback_that_is_no_coroutine(loop):
    async def use(module):
        def serve(reader, writer):
            writer.write(b"hello")
            writer.close()

        async with served(module, serve) as (reader, _):
            return await reader.read()

    assert same_on_both(loop, use) == b"hello"


def test_callback_that_fails(loop):
    async def use(module):
        reports = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))

        async def serve(reader, writer):
            raise ValueError("failed")

        async with served(module, serve) as (reader, _):
            found = await reader.read()
        return found, [(report["message"], repr(report["exception"])) for report in reports]

    same_on_both(loop, use)


def test_connection_that_cannot_be_made(loop):
    async def use(module):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            try:
                await module.open_connection(*unused.getsockname())
            except OSError as error:
                return type(error).__name__
        return None

    assert same_on_both(loop, use) == "ConnectionRefusedError"


def test_changes_of_asyncios_module_count(loop, monkeypatch):
    """Its globals are asyncio's, but for the compiled classes."""
    calls = []

    class Events:
        def get_running_loop(self):
            calls.append("asked")
            return asyncio.get_running_loop()

    async def use():
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.streams, "events", Events())
            server = await hotloop.asyncio.start_server(print, "127.0.0.1", 0)
        server.close()
        await server.wait_closed()

    loop.run_until_complete(use())
    assert calls == ["asked"]


def test_attributes_of_the_program_on_both_ends(loop):
    """Their objects have a `__dict__` then, and data still arrives."""

    async def use(module):
        async def serve(reader, writer):
            reader.mark = writer.mark = writer._protocol.mark = 1
            async for line in reader:
                writer.write(line)
                await writer.drain()
            writer.close()

        async with served(module, serve) as (reader, writer):
            reader.mark = 2
            found = []
            for number in range(5):
                writer.write(b"%d\n" % number)
                found.append(await reader.readline())
            writer.write_eof()
            return [*found, await reader.read()]

    same_on_both(loop, use)


@pytest.mark.parametrize("patched", ["feed_data", "_wakeup_waiter"])
def test_method_replaced_on_a_reader_sees_the_data(loop, patched):
    async def use(module):
        calls = []

        async def serve(reader, writer):
            for _ in range(3):
                writer.write(await reader.readline())
            writer.close()

        async with served(module, serve) as (reader, writer):
            own = getattr(reader, patched)

            def replaced(*arguments):
                calls.append(arguments)
                own(*arguments)

            setattr(reader, patched, replaced)
            for number in range(3):
                writer.write(b"%d\n" % number)
                assert await reader.readline() == b"%d\n" % number
            assert await reader.read() == b""
        return calls

    same_on_both(loop, use)


def test_subclasses_and_mixtures_receive_data(loop):
    async def use(module):
        running = asyncio.get_running_loop()
        found = []
        classes = [module.StreamReader, type("Reader", (module.StreamReader,), {}), asyncio.StreamReader]
        protocols = [
            module.StreamReaderProtocol,
            type("Protocol", (module.StreamReaderProtocol,), {}),
            asyncio.StreamReaderProtocol,
        ]
        for make_reader in classes:
            for make_protocol in protocols:
                ours, peer = socket.socketpair()
                with peer:
                    reader = make_reader(limit=100, loop=running)
                    protocol = make_protocol(reader, loop=running)
                    transport, _ = await running.create_connection(lambda made=protocol: made, sock=ours)
                    writer = module.StreamWriter(transport, protocol, reader, running)
                    peer.send(b"one\ntwo")
                    found += [await reader.readline(), await reader.readexactly(3)]
                    writer.write(b"answer")
                    await writer.drain()
                    found.append(peer.recv(100))
                    peer.send(b"x" * 300)
                    while len(reader._buffer) < 300:
                        await asyncio.sleep(0)
                    found += [reader._paused, await reader.read(250), reader._paused]
                    writer.close()
                    await writer.wait_closed()
        return found

    same_on_both(loop, use)


def test_reader_imported_before_the_installation_is_accepted():
    source = """if True:
        import asyncio
        from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
        import hotloop
        hotloop.install(compiled_asyncio=True)
        async def main():
            loop = asyncio.get_running_loop()
            reader = StreamReader()
            protocol = StreamReaderProtocol(reader, loop=loop)
            transport = type("Closed", (), {"is_closing": lambda self: True})()
            for kind in (StreamWriter, asyncio.StreamWriter):
                for accepted in (reader, asyncio.StreamReader(), None):
                    kind(transport, protocol, accepted, loop)
                try:
                    kind.__init__(kind(transport, protocol, None, loop), transport, protocol, "no reader", loop)
                except AssertionError:
                    print("refused")
        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["refused"] * 2, "")
