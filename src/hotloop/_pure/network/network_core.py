"""NetworkCore: LoopCore with the I/O that asyncio asks a loop for.

The transports are the standard library's, which are written in Python already. NetworkCore counts their bytes for
loop.metrics().
"""

import asyncio
import socket
import sys
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

from hotloop._pure.loop.loop_core import FallbackLoopCore, LoopCore
from hotloop._pure.network.socket_methods import SocketMethods
from hotloop._pure.runtime.stdlib import selector_events
from hotloop._pure.transports.metered_socket import MeteredSocket
from hotloop._pure.transports.protocol_kind import takes_buffers

if sys.platform != "win32":
    from hotloop._pure.transports.pipe import _UnixReadPipeTransport, _UnixWritePipeTransport

# asyncio's transports allocate 256 KiB for each read and give most of it back at once. glibc maps, faults in and unmaps
# such a block each time, which costs four times the rest of the read, until it has freed a larger one; from then on it
# takes the block from the heap.
len(bytes(1 << 20))

if TYPE_CHECKING:
    import ssl

    _SocketTransport = Any
else:
    _SocketTransport = selector_events._SelectorSocketTransport


class _SelectorSocketTransport(_SocketTransport):  # type: ignore[misc]
    """asyncio's transport, under the same name, which also recognizes a buffered protocol by its methods."""

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio.BaseTransport."""
        super().set_protocol(protocol)
        if takes_buffers(protocol):
            self._read_ready_cb = self._read_ready__get_buffer


class NetworkCore(SocketMethods, LoopCore):
    """The I/O of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    def _make_socket_transport(self, sock: Any, protocol: Any, waiter: Any = None, **keywords: Any) -> Any:
        if sys.version_info >= (3, 12):  # in Python 3.11 the callers of this method check it
            self._ensure_fd_no_transport(sock)
        return self._metered(_SelectorSocketTransport(self, sock, protocol, waiter, **keywords))

    def _make_ssl_transport(self, rawsock: Any, *arguments: Any, **keywords: Any) -> Any:
        transport = super()._make_ssl_transport(rawsock, *arguments, **keywords)
        # The transport below it, which no other code has seen yet.
        self._metered(self._transports.get(rawsock.fileno()))
        return transport

    def _make_datagram_transport(self, sock: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._metered(super()._make_datagram_transport(sock, *arguments, **keywords))

    if sys.platform != "win32":

        def _make_read_pipe_transport(self, *arguments: Any, **keywords: Any) -> Any:
            return self._counting(_UnixReadPipeTransport(self, *arguments, **keywords))

        def _make_write_pipe_transport(self, *arguments: Any, **keywords: Any) -> Any:
            return self._counting(_UnixWritePipeTransport(self, *arguments, **keywords))

    def _counting(self, transport: Any) -> Any:
        """Have a pipe transport count its bytes in this loop's metrics."""
        transport._meter = self._meter
        self._meter.pipes.add(transport)
        return transport

    def _metered(self, transport: Any) -> Any:
        """Have asyncio's socket transport count its bytes from now on, if the program has asked for metrics."""
        sock = None if transport is None else transport._sock
        if self._meter.measuring and sock is not None and type(sock) is not MeteredSocket:
            transport._sock = MeteredSocket(sock, self._meter)
        return transport

    def _measure_transports(self) -> None:
        """Have the existing transports count their bytes."""
        for transport in list(self._transports.values()):
            self._metered(transport)

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> Any:
        # A copy of asyncio's method, but for the last line.
        del self._transports[transp._sock_fd]
        resume_reading = transp.is_reading()
        transp.pause_reading()
        await transp._make_empty_waiter()
        try:
            return await self.sock_sendfile(transp._sock, file, offset, count, fallback=False)
        finally:
            transp._reset_empty_waiter()
            if resume_reading:
                transp.resume_reading()
            self._transports[transp._sock_fd] = transp
            # _measure_transports() did not see it meanwhile.
            self._metered(transp)

    def _open_transports(self) -> dict[str, int]:
        """The open transports by kind, for loop.metrics()."""
        kinds = dict.fromkeys(("tcp", "stream", "datagram", "read_pipe", "write_pipe"), 0)
        for transport in list(self._transports.values()):
            if transport._sock is not None:
                kinds[_kind_of_socket(transport._sock)] += 1
        for transport in list(self._meter.pipes):
            if transport._pipe is not None:
                kinds["write_pipe" if isinstance(transport, asyncio.WriteTransport) else "read_pipe"] += 1
        return kinds

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
    """NetworkCore on the loop that hands out the interpreter's own futures and tasks."""


def _kind_of_socket(sock: Any) -> str:
    if sock.type == socket.SOCK_DGRAM:
        return "datagram"
    return "tcp" if sock.family in (socket.AF_INET, socket.AF_INET6) else "stream"


class TlsProtocol(sslproto.SSLProtocol):
    """asyncio's SSLProtocol, with what start_tls() needs."""

    def receive_early_data(self, data: bytes) -> None:
        """Take data that arrived before start_tls() and belongs to the handshake."""
        self._incoming.write(data)  # type: ignore[attr-defined]

    def connection_made(self, transport: Any) -> None:
        """As in asyncio, but the transport may be full already: it has told the application's protocol only."""
        if transport._protocol_paused:
            self._ssl_writing_paused = self._app_writing_paused = True
        super().connection_made(transport)

    def resume_writing(self) -> None:
        """As in asyncio, but also without a preceding pause_writing() of this protocol."""
        if self._transport is None:
            self._ssl_writing_paused = self._app_writing_paused = True
        super().resume_writing()
