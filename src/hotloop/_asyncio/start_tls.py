"""start_tls(): asyncio's, with hotloop's TLS and, on every Python, with the fixes that asyncio got over the years.

The peer's ClientHello may arrive together with the data before it, and is then in a server's stream reader (CPython
issue 142352). And the transport's write buffer may be full: then the new protocol begins paused.

Source: asyncio/base_events.py.
"""

import asyncio
from typing import Any

from hotloop._asyncio.mixin import Behind

try:
    import ssl
except ImportError:
    # Python can be built without it.
    ssl = None  # type: ignore[assignment]


class StartTls(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of asyncio.SelectorEventLoop."""

    async def start_tls(
        self,
        transport: Any,
        protocol: asyncio.BaseProtocol,
        sslcontext: "ssl.SSLContext",
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> asyncio.Transport | None:
        """Upgrade a connection to TLS. Returns the transport to be used from now on, or None if the connection has
        ended without an error. See loop.start_tls()."""
        if ssl is None:
            raise RuntimeError("Python ssl module is not available")
        if not isinstance(sslcontext, ssl.SSLContext):
            raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        waiter = self.create_future()
        timeouts = {"ssl_handshake_timeout": ssl_handshake_timeout, "ssl_shutdown_timeout": ssl_shutdown_timeout}
        tls = self._make_tls_protocol(transport, protocol, sslcontext, waiter, server_side, server_hostname, timeouts)
        # No data may arrive before connection_made().
        transport.pause_reading()
        if server_side:
            tls.receive_early_data(take_buffered(protocol))
        transport.set_protocol(tls)
        made = self.call_soon(tls.connection_made, transport)
        resumed = self.call_soon(transport.resume_reading)
        try:
            await waiter
        except BaseException:
            transport.close()
            made.cancel()
            resumed.cancel()
            # The exception's traceback holds this frame, which must not hold the exception (CPython issue 159049).
            waiter = None
            raise
        return tls._app_transport  # type: ignore[no-any-return]


def take_buffered(protocol: asyncio.BaseProtocol) -> bytes:
    """Take the data that a stream reader has received and the program has not read."""
    if not isinstance(protocol, asyncio.StreamReaderProtocol):
        return b""
    reader = protocol._stream_reader  # type: ignore[attr-defined]
    if reader is None:
        return b""
    buffered = bytes(reader._buffer)
    reader._buffer.clear()
    return buffered
