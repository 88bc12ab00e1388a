"""What does a server pay for TLS: for each message, for a new connection, for a long answer?

The clients are in C and use OpenSSL. They offer TLS 1.3 with one cipher, AES-256-GCM, and one group, X25519, so that
all loops do the same cryptography, and they verify the server's certificate and address. A message leaves a client in
one send(). Every handshake is a full one, without tickets of an earlier connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from .. import identity, load
from ..load import Downloader, Network
from .echo import INTERFACES, SIZES, Counted
from .network import echoing_once
from .registry import Rows
from .serving import Connections, Loop, bare, bare_driven, driven, protocol_server, served

rows = Rows()

BLOCK = 256 * 1024
"""Bytes: the BLOCK of the load generator."""
MEBIBYTES = 1024


def unavailable() -> str | None:
    return load.unavailable(load.TLS) or identity.unavailable()


for interface, size in (
    ("protocol", "1KiB"),
    ("protocol", "64KiB"),
    ("buffered", "64KiB"),
    ("streams", "1KiB"),
    ("streams", "64KiB"),
):
    serve, by = INTERFACES[interface]
    rows.on_network(
        f"echo-tls-{interface}-32x{size}",
        f"What does it cost to echo {size} over TLS by {by}, with 32 connected?",
        operations=500 if size == "64KiB" else 2_000,
        opened=served(serve, "tls", 32, SIZES[size]),
        bare=bare("echo", "tls", 32, SIZES[size]),
        limited=interface == "protocol",
        table="TLS",
        unavailable=unavailable,
    )

rows.on_network(
    "handshakes-tls-32",
    "What does a TLS connection cost: accept, full handshake, one byte echoed and close, 32 of them at a time?",
    operations=200,
    opened=served(echoing_once, "tls", 32, None),
    bare=bare("once", "tls", 32, None),
    table="TLS",
    unavailable=unavailable,
)


# -- a download --------------------------------------------------------------------------------------------------------


class Download(Counted, asyncio.Protocol):
    """Receives a block, then sends it once for each further byte received, as fast as the transport takes it."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self.told = bytearray()
        self.block = b""
        self.wanted = 0
        self.paused = False

    def data_received(self, data: bytes) -> None:
        missing = BLOCK - len(self.told)
        self.told += data[:missing]
        if missing and len(self.told) == BLOCK:
            self.block = bytes(self.told)
        self.wanted += len(data[missing:])
        self.send()

    def send(self) -> None:
        while self.wanted and not self.paused:
            self.wanted -= 1
            self.transport.write(self.block)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.send()


@contextlib.asynccontextmanager
async def by_download(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    connections = Connections()
    async with protocol_server(loop, network, path, lambda: Download(connections), connections) as address:
        yield address


def downloading(address: str, path: str) -> Downloader:
    return Downloader("tls", address, identity=path)


rows.on_network(
    "download-tls-1GiB",
    "What does each MiB cost of 1 GiB that one TLS connection sends, in blocks of 256 KiB?",
    operations=16,
    in_a_round=MEBIBYTES,
    opened=driven(by_download, "tls", 1, downloading),
    bare=bare_driven("download", "tls", downloading),
    limited=True,
    table="TLS",
    unavailable=unavailable,
)
