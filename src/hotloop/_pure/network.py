"""NetworkCore: LoopCore with what hotloop adds to a loop's I/O.

The transports are the standard library's, which are written in Python already.
"""

import asyncio
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

from hotloop._pure.core import FallbackLoopCore, LoopCore

if TYPE_CHECKING:
    import ssl


class NetworkCore(LoopCore):
    """The I/O of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    def _make_tls_protocol(
        self,
        transport: Any,
        protocol: asyncio.BaseProtocol,
        sslcontext: "ssl.SSLContext",
        waiter: Any,
        server_side: bool,
        server_hostname: str | None,
        timeouts: dict[str, Any],
    ) -> "TlsProtocol":
        return TlsProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            call_connection_made=False,
            **timeouts,
        )


class FallbackNetworkCore(NetworkCore, FallbackLoopCore):
    """The same on the loop that hands out the interpreter's own futures and tasks."""


class TlsProtocol(sslproto.SSLProtocol):
    """asyncio's, with what start_tls() needs of it."""

    def received_before(self, data: bytes) -> None:
        """Take what had arrived before start_tls(), and belongs to the handshake."""
        self._incoming.write(data)  # type: ignore[attr-defined]

    def connection_made(self, transport: Any) -> None:
        """As asyncio's, but the transport may be full already: it is the application's protocol that was told."""
        if transport._protocol_paused:
            self._ssl_writing_paused = self._app_writing_paused = True
        super().connection_made(transport)

    def resume_writing(self) -> None:
        """As asyncio's, but not only after a pause_writing() of this protocol."""
        if self._transport is None:
            self._ssl_writing_paused = self._app_writing_paused = True
        super().resume_writing()
