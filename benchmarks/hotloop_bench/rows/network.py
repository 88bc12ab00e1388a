"""What do a server's other operations cost: datagrams, new connections, processes, addresses, files?"""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ..load import BareServer, Network, unavailable
from .echo import Counted, by_protocol
from .registry import Rows
from .serving import Loop, Working, bare, served

rows = Rows()

DATAGRAM_SIZE = 512
FILE_SIZE = 100 * 1024 * 1024


# -- datagrams ---------------------------------------------------------------------------------------------------------


class EchoDatagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)


@contextlib.asynccontextmanager
async def by_datagrams(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    transport, _ = await loop.create_datagram_endpoint(EchoDatagrams, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    yield f"{host}:{port}"
    transport.close()


# About 160 datagrams fill the receive buffer of a socket on Linux; more would be lost before any loop saw them.
for peers in (1, 32, 100):
    rows.on_network(
        f"echo-udp-{peers}x512B",
        f"What does it cost to echo a datagram of 512 bytes, with {peers} peers?",
        operations=2_000 + 10 * peers,
        opened=served(by_datagrams, "udp", peers, DATAGRAM_SIZE),
        bare=bare("echo", "udp", peers, DATAGRAM_SIZE),
        on_request=peers != 32,
        in_turns=peers == 1,
        unavailable=unavailable,
    )


# -- connections -------------------------------------------------------------------------------------------------------


class EchoOnce(Counted, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        # The side that closes first keeps the port for a minute (TIME_WAIT), and the clients have too few ports.
        self.transport.close()


@contextlib.asynccontextmanager
async def echoing_once(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    async with by_protocol(loop, network, path, EchoOnce) as address:
        yield address


rows.on_network(
    "connections-tcp-32",
    "What does a connection cost that is accepted, echoes one byte and is closed, 32 of them at a time?",
    operations=500,
    opened=served(echoing_once, "tcp", 32, None),
    bare=bare("once", "tcp", 32, None),
    unavailable=unavailable,
)


# -- processes and addresses -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def spawning(loop: Loop) -> Iterator[Working]:
    program = shutil.which("true")
    if program is None:
        raise FileNotFoundError("there is no program called true")

    async def spawn(n: int) -> None:
        for _ in range(n):
            process = await asyncio.create_subprocess_exec(program)
            if code := await process.wait():
                raise AssertionError(f"{program} ended with code {code}")

    yield Working(loop, spawn)


rows.on_network(
    "subprocess-spawn-wait",
    "What does it cost to start a process that does nothing, and to wait for its end?",
    operations=20,
    opened=spawning,
    on_transports=False,
    in_turns=True,
)


@contextlib.contextmanager
def looking_up(loop: Loop) -> Iterator[Working]:
    wanted = socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)

    async def look_up(n: int) -> None:
        for _ in range(n):
            found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        if [tuple(entry) for entry in found] != wanted:
            raise AssertionError(f"getaddrinfo() found {found}, not {wanted}")

    yield Working(loop, look_up)


rows.on_network(
    "getaddrinfo-literal",
    "What does getaddrinfo() of an address in digits cost, which needs no name server?",
    operations=1_000,
    opened=looking_up,
    on_transports=False,
)


# -- files -------------------------------------------------------------------------------------------------------------


class OneLine(asyncio.Protocol):
    """Receives the line that the sink sends at the end."""

    def __init__(self, loop: Loop) -> None:
        self.line: asyncio.Future[bytes] = loop.create_future()
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.received.endswith(b"\n") and not self.line.done():
            self.line.set_result(self.received)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.line.done():
            self.line.set_exception(exc or ConnectionError("the sink closed the connection too early"))


@contextlib.contextmanager
def sending_a_file(loop: Loop) -> Iterator[Working]:
    with BareServer("tcp", "sink") as sink, tempfile.NamedTemporaryFile() as zeros:
        os.truncate(zeros.name, FILE_SIZE)  # a sparse file: no disk space, and in memory once read
        host, port = sink.address.split(":")

        async def send(n: int) -> None:
            for _ in range(n):
                transport, protocol = await loop.create_connection(lambda: OneLine(loop), host, int(port))
                with open(zeros.name, "rb") as file:
                    await loop.sendfile(transport, file, 0, FILE_SIZE)
                transport.write_eof()
                if int(await protocol.line) != FILE_SIZE:
                    raise AssertionError(f"{int(protocol.received)} bytes arrived, of {FILE_SIZE}")
                transport.close()

        yield Working(loop, send)


rows.on_network(
    "sendfile-100MiB",
    "What does it cost to send a file of 100 MiB by sendfile(), over a connection of its own?",
    operations=2,
    opened=sending_a_file,
    unavailable=unavailable,
)
