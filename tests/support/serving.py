"""Servers on the loop under test, and a factory that keeps the protocols it has made."""

import asyncio
from collections.abc import Callable
from typing import Any

from support.endpoints import settle, until
from support.recording import Recorder


async def serving(
    loop: asyncio.AbstractEventLoop, factory: Callable[[], Any] = Recorder, **keywords: Any
) -> tuple[asyncio.Server, Any]:
    """(server, its address)."""
    server = await loop.create_server(factory, "127.0.0.1", 0, **keywords)
    return server, server.sockets[0].getsockname()


async def stop(server: asyncio.Server) -> None:
    server.close()
    await server.wait_closed()
    await settle()


class Made:
    """A protocol factory that keeps its protocols."""

    def __init__(self, kind: Callable[[], Any] = Recorder) -> None:
        self.kind = kind
        self.protocols: list[Any] = []

    def __call__(self) -> Any:
        self.protocols.append(self.kind())
        return self.protocols[-1]

    async def gone(self) -> None:
        await until(lambda: all(protocol.lost for protocol in self.protocols))


def clients_of(server: Any) -> Any:
    """Connections that the server still counts, in the way of this Python version."""
    return getattr(server, "_clients", None) or getattr(server, "_active_count", 0)
