"""Shared by the tests of pipe_network(): servers, clients, and a protocol that records times."""

import asyncio
import contextlib

from hotloop.testing import pipe_network


def now():
    return asyncio.get_running_loop().time()


async def echo(reader, writer):
    # Close it even if the task is cancelled: only newer Pythons do that.
    with contextlib.closing(writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def swallow(reader, writer):
    with contextlib.closing(writer), contextlib.suppress(OSError):
        await reader.read()


@contextlib.asynccontextmanager
async def connected(host="server.test", port=80, **options):
    reader, writer = await asyncio.open_connection(host, port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class TimedRecorder(asyncio.Protocol):
    """Records its calls with their times."""

    def __init__(self):
        self.notes = []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.notes.append((now(), "made"))

    def data_received(self, data):
        self.notes.append((now(), data))

    def eof_received(self):
        self.notes.append((now(), "eof"))

    def connection_lost(self, exc):
        self.notes.append((now(), "lost", type(exc)))
        self.lost.set_result(None)


async def traffic():
    """Run several clients at once; return the trace."""
    deliveries = []
    async with pipe_network(latency=(0.01, 0.1), bandwidth=1e5, fragment=(1, 50), trace=deliveries.append):
        server = await asyncio.start_server(echo, "server.test", 80)

        async def client(number):
            await asyncio.sleep(number % 2)
            async with connected() as (reader, writer):
                for _ in range(3):
                    writer.write(bytes([number]) * 100)
                    await reader.readexactly(100)

        await asyncio.gather(*(client(number) for number in range(4)))
        server.close()
    return deliveries
