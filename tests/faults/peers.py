"""The ends of the scenarios' connections: protocols, and the contexts of TLS."""

import asyncio
import ssl
from typing import Any


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport, self.buffer = transport, bytearray(4096)

    def get_buffer(self, size_hint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.transport.write(self.buffer[:count])


class Client(asyncio.Protocol):
    """Keeps the data, and reports when there is enough or no more can come."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.received = bytearray()
        self.wanted = 1 << 62
        self.enough, self.lost = loop.create_future(), loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._look()

    def _look(self) -> None:
        if len(self.received) >= self.wanted and not self.enough.done():
            self.enough.set_result(None)

    async def until(self, size: int) -> None:
        self.wanted = size
        self._look()
        await self.enough

    def connection_lost(self, error: Exception | None) -> None:
        if not self.enough.done():
            self.enough.set_exception(error or ConnectionResetError("the connection was lost"))
            self.enough.exception()
        if not self.lost.done():
            self.lost.set_result(None)


def close_clients(server: Any) -> None:
    """Python 3.13 and later close a server's connections; before, they end with the objects that own them."""
    if hasattr(server, "abort_clients"):
        server.abort_clients()


_contexts: list[ssl.SSLContext] = []


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of a client; made once, in the process from which all others are forked."""
    if not _contexts:
        from support import certificates

        issued = certificates.issued()
        _contexts.extend((issued.server_context(), issued.client_context()))
    return _contexts[0], _contexts[1]
