"""What does it cost a server to send back what it receives, by each of asyncio's interfaces to a socket?

Processor time of the server's process for one message; the clients are in another process, in C. The load is a closed
loop: every connection sends its next message when the echo of the last one is complete, and each byte is checked.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator
from typing import Any

from ..load import Network, unavailable
from .registry import Rows
from .serving import BACKLOG, Connections, Loop, Serve, bare, closed, context_of, protocol_server, served

rows = Rows()

READ_SIZE = 64 * 1024


class Counted(asyncio.BaseProtocol):
    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.connections.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.open -= 1


class EchoProtocol(Counted, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class EchoBuffered(Counted, asyncio.BufferedProtocol):
    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self.buffer = memoryview(bytearray(READ_SIZE))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        # A copy: the buffer may be filled again before all of it is sent, and not every loop copies what it keeps.
        self.transport.write(bytes(self.buffer[:nbytes]))


@contextlib.asynccontextmanager
async def by_protocol(
    loop: Loop, network: Network, path: str, protocol: type[Counted] = EchoProtocol
) -> AsyncIterator[str]:
    connections = Connections()
    async with protocol_server(loop, network, path, lambda: protocol(connections), connections) as address:
        yield address


by_buffered = functools.partial(by_protocol, protocol=EchoBuffered)


@contextlib.asynccontextmanager
async def by_streams(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    connections = Connections()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.open += 1
        try:
            while data := await reader.read(READ_SIZE):
                writer.write(data)
                await writer.drain()
        finally:
            connections.open -= 1
            writer.close()

    if network == "unix":
        server = await asyncio.start_unix_server(echo, path, backlog=BACKLOG)
        address = path
    else:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=BACKLOG, ssl=context_of(network, path))
        address = "{}:{}".format(*server.sockets[0].getsockname())
    yield address
    await closed(server, connections)


@contextlib.asynccontextmanager
async def by_sock(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None]] = set()

    def start(coroutine: Any) -> None:
        task = loop.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "the echo ended", "exception": error})

    async def echo(connection: socket.socket) -> None:
        with connection:
            while data := await loop.sock_recv(connection, READ_SIZE):
                await loop.sock_sendall(connection, data)

    async def accept(listener: socket.socket) -> None:
        while True:
            connection, _ = await loop.sock_accept(listener)
            if network == "tcp":
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            start(echo(connection))

    with socket.socket(socket.AF_UNIX if network == "unix" else socket.AF_INET) as listener:
        listener.setblocking(False)
        listener.bind(path if network == "unix" else ("127.0.0.1", 0))
        listener.listen(BACKLOG)
        start(accept(listener))
        yield path if network == "unix" else "{}:{}".format(*listener.getsockname())
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


INTERFACES: dict[str, tuple[Serve, str]] = {
    "protocol": (by_protocol, "a Protocol"),
    "buffered": (by_buffered, "a BufferedProtocol"),
    "streams": (by_streams, "a stream reader and writer"),
    "sock": (by_sock, "sock_recv() and sock_sendall()"),
}
NETWORKS: dict[Network, str] = {"tcp": "TCP", "unix": "a Unix socket"}
CONNECTIONS = (1, 32, 500)
SIZES = {"128B": 128, "1KiB": 1024, "64KiB": 64 * 1024}

# Each interface, network, number and size occurs several times, in different combinations, the most common ones most
# often. The rest of the grid is measured on request.
USUAL: dict[tuple[Network, str], tuple[str, ...]] = {
    ("tcp", "protocol"): ("1x128B", "32x1KiB", "500x1KiB", "32x64KiB"),
    ("tcp", "buffered"): ("1x1KiB", "500x128B", "32x64KiB"),
    ("tcp", "streams"): ("1x128B", "32x1KiB", "500x1KiB", "32x64KiB"),
    ("tcp", "sock"): ("32x1KiB", "500x128B"),
    ("unix", "protocol"): ("32x1KiB",),
    ("unix", "streams"): ("32x128B",),
    ("unix", "sock"): ("32x1KiB",),
}


def register(network: Network, interface: str, connections: int, size: str) -> None:
    load = f"{connections}x{size}"
    serve, by = INTERFACES[interface]
    # sock_recv() does not suspend the task when data is there: a client that answers at once can keep the server busy
    # with this client alone. Whether it does depends on which of the two is faster by a microsecond.
    waves = interface == "sock"
    rows.on_network(
        f"echo-{network}-{interface}-{load}",
        f"What does it cost to echo {size} over {NETWORKS[network]} by {by}, with {connections} connected?",
        operations=10 * connections + (200 if size == "64KiB" else 2_000),
        opened=served(serve, network, connections, SIZES[size], waves=waves),
        bare=bare("echo", network, connections, SIZES[size], waves=waves),
        limited=interface == "protocol",
        in_turns=connections == 1,
        on_request=load not in USUAL.get((network, interface), ()),
        unavailable=unavailable,
    )


for network in NETWORKS:
    for interface in INTERFACES:
        for connections in CONNECTIONS:
            for size in SIZES:
                register(network, interface, connections, size)
