"""TlsProtocol: asyncio's TLS, for start_tls()."""

from asyncio import sslproto
from typing import Any


class TlsProtocol(sslproto.SSLProtocol):
    """asyncio's SSLProtocol, with what start_tls() needs."""

    def receive_early_data(self, data: bytes) -> None:
        """Take data that arrived before start_tls() and belongs to the handshake."""
        self._incoming.write(data)  # type: ignore[attr-defined]

    def connection_made(self, transport: Any) -> None:
        """As in asyncio, but the transport may be full already: it has told the application's protocol only. The
        handshake goes on."""
        # A program's own transport with `_start_tls_compatible` may have no `_protocol_paused`.
        if getattr(transport, "_protocol_paused", False):
            self._app_writing_paused = True
        super().connection_made(transport)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        super()._on_handshake_complete(handshake_exc)
        if self._app_writing_paused and getattr(self._transport, "_protocol_paused", False):
            # From connection_made() on, and the transport is full still.
            self._ssl_writing_paused = True

    def resume_writing(self) -> None:
        """As in asyncio, but also without a preceding pause_writing() of this protocol."""
        if self._transport is None:
            self._ssl_writing_paused = self._app_writing_paused = True
        super().resume_writing()
