"""NetworkCore: LoopCore with the I/O that asyncio asks a loop for.

The transports are the standard library's, which are written in Python already, those of pipes and stream sockets in
subclasses (transports/). NetworkCore counts their bytes for loop.metrics().
"""

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.shared_items import copy_of
from hotloop._pure.loop.loop_core import LoopCore
from hotloop._pure.network.socket_methods import SocketMethods
from hotloop._pure.transports.counting_socket import CountingSocket
from hotloop._pure.transports.stream import _SelectorSocketTransport

if sys.platform != "win32":
    from hotloop._pure.transports.pipe import _UnixReadPipeTransport, _UnixWritePipeTransport

if TYPE_CHECKING:
    import ssl

    from hotloop._pure.tls.protocol import TlsProtocol


class NetworkCore(SocketMethods, LoopCore):
    """The I/O of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    def _make_socket_transport(self, sock: Any, protocol: Any, waiter: Any = None, **keywords: Any) -> Any:
        if sys.version_info >= (3, 12):  # in Python 3.11 the callers of this method check it
            self._ensure_fd_no_transport(sock)
        return self._count_socket_bytes(_SelectorSocketTransport(self, sock, protocol, waiter, **keywords))

    def _make_ssl_transport(self, rawsock: Any, *arguments: Any, **keywords: Any) -> Any:
        transport = super()._make_ssl_transport(rawsock, *arguments, **keywords)
        # The transport below it, which no other code has seen yet.
        self._count_socket_bytes(self._transports.get(rawsock.fileno()))
        return transport

    def _make_datagram_transport(self, sock: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._count_socket_bytes(super()._make_datagram_transport(sock, *arguments, **keywords))

    if sys.platform != "win32":

        def _make_read_pipe_transport(self, *arguments: Any, **keywords: Any) -> Any:
            return self._count_pipe_bytes(_UnixReadPipeTransport(self, *arguments, **keywords))

        def _make_write_pipe_transport(self, *arguments: Any, **keywords: Any) -> Any:
            return self._count_pipe_bytes(_UnixWritePipeTransport(self, *arguments, **keywords))

    def _count_pipe_bytes(self, transport: Any) -> Any:
        """Have a pipe transport count its bytes in this loop's metrics."""
        transport._measurements = self._measurements
        self._measurements.pipes.add(transport)
        return transport

    def _count_socket_bytes(self, transport: Any) -> Any:
        """Have asyncio's socket transport count its bytes from now on, if the program has asked for metrics."""
        sock = None if transport is None else transport._sock
        if self._measurements.measuring and sock is not None and type(sock) is not CountingSocket:
            transport._sock = CountingSocket(sock, self._measurements)
        return transport

    def _count_bytes_of_open_transports(self) -> None:
        """Have the existing transports count their bytes."""
        for transport in self._socket_transports():
            self._count_socket_bytes(transport)

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> Any:
        # A copy of asyncio's method, but for what comments explain.
        del self._transports[transp._sock_fd]
        resume_reading = transp.is_reading()
        transp.pause_reading()
        waiter = transp._make_empty_waiter()
        try:
            # Within, unlike asyncio: else a sendfile() that is cancelled while written data waits for the socket would
            # leave a transport that neither writes nor reads any more.
            await waiter
            return await self.sock_sendfile(transp._sock, file, offset, count, fallback=False)
        finally:
            transp._reset_empty_waiter()
            # The garbage collector may end this coroutine after its loop was closed.
            if resume_reading and not self._closed:
                transp.resume_reading()
            self._transports[transp._sock_fd] = transp
            # _count_bytes_of_open_transports() did not see it meanwhile.
            self._count_socket_bytes(transp)

    def _socket_transports(self) -> list[Any]:
        # valuerefs() makes its copy at once, values() does not: another thread may ask for metrics.
        return [transport for ref in self._transports.valuerefs() if (transport := ref()) is not None]

    def _open_transports(self) -> dict[str, int]:
        """The open transports by kind, for loop.metrics()."""
        kinds = dict.fromkeys(("tcp", "stream", "datagram", "read_pipe", "write_pipe"), 0)
        for transport in self._socket_transports():
            sock = transport._sock
            if sock is not None:
                kinds[_kind_of_socket(sock)] += 1
        for transport in copy_of(self._measurements.pipes):
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
        from hotloop._pure.tls.protocol import TlsProtocol

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


def _kind_of_socket(sock: Any) -> str:
    if sock.type == socket.SOCK_DGRAM:
        return "datagram"
    return "tcp" if sock.family in (socket.AF_INET, socket.AF_INET6) else "stream"
