"""Networked: the methods with which a loop under test uses its network, if it has one, instead of the system."""

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.mixin import Behind
from hotloop.testing.connection import Listener, NetworkSocket

if TYPE_CHECKING:
    from hotloop.testing.network import PipeNetwork


class Networked(Behind):  # type: ignore[misc]
    """Part of hotloop.testing.EventLoop: names, servers and connections of a pipe_network()."""

    _network: "PipeNetwork | None" = None

    def _attach_network(self, network: "PipeNetwork") -> None:
        self._check_closed()
        self.clock._check_thread()
        if self._network is not None:
            raise RuntimeError(f"the loop has a network already: {self._network!r}")
        self._network = network

    def _detach_network(self) -> None:
        self._network = None

    def close(self) -> None:
        """See loop.close(). The loop's network is closed, too."""
        if self._network is not None and not self.is_running():
            self._network.close()
        super().close()

    # -- names ---------------------------------------------------------------------------------------------------------

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """See loop.getaddrinfo(). A network knows its own hosts and no others."""
        if self._network is None:
            found = await super().getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)
        else:
            self._check_closed()
            found = self._network._resolve(host, port, family, type, proto, flags)
        return found  # type: ignore[no-any-return]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """See loop.getnameinfo(). A network knows its own hosts and no others."""
        if self._network is None:
            return await super().getnameinfo(sockaddr, flags)  # type: ignore[no-any-return]
        self._check_closed()
        return self._network._name_of(sockaddr, flags)

    # -- servers -------------------------------------------------------------------------------------------------------

    async def create_server(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        family: int = socket.AF_UNSPEC,
        flags: int = socket.AI_PASSIVE,
        sock: Any = None,
        reuse_address: bool | None = None,
        reuse_port: bool | None = None,
        keep_alive: bool | None = None,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.Server:
        """See loop.create_server(). In a network, the server is on the hosts of `host`, or of its socket's address."""
        network = self._network
        by_address = sock is None and not (host is None and port is None)
        by_socket = host is None and port is None and _is_tcp(sock) and not isinstance(sock, Listener)
        if network is None or not (by_address or by_socket):
            for name, value in (("reuse_port", reuse_port), ("keep_alive", keep_alive)):
                if value is not None:  # not every Python has them
                    options[name] = value
            return await super().create_server(  # type: ignore[no-any-return]
                protocol_factory,
                host,
                port,
                family=family,
                flags=flags,
                sock=sock,
                reuse_address=reuse_address,
                start_serving=start_serving,
                **options,
            )
        if by_socket:
            listeners = [network._stand_for(sock)]
        else:
            several = isinstance(host, Iterable) and not isinstance(host, (str, bytes))
            listeners = await network._listen(list(host) if several else [host], port, family, flags)
        server = await self._server_on(listeners, protocol_factory, options)
        network._servers.append(server)
        if start_serving:
            await server.start_serving()
        return server

    async def _server_on(
        self, listeners: list[Listener], protocol_factory: Any, options: dict[str, Any]
    ) -> asyncio.Server:
        """A server that does not serve yet, on all these listeners, which are closed if it cannot be made."""
        # Up to CPython 3.12 a server on no hosts is one without sockets; since then asyncio raises OSError.
        where: dict[str, Any] = {"sock": listeners[0]} if listeners else {"host": ()}
        try:
            server = await super().create_server(protocol_factory, start_serving=False, **where, **options)
        except BaseException:
            for listener in listeners:
                listener.bound = None  # the socket still belongs to the caller
                listener.close()
            raise
        # create_server() takes only one socket.
        server._sockets[:] = listeners
        return server  # type: ignore[no-any-return]

    # -- connections ---------------------------------------------------------------------------------------------------

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, local_addr: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """See loop.create_connection()."""
        if self._network is None or local_addr is None:
            if local_addr is not None:
                options["local_addr"] = local_addr
            return await super().create_connection(protocol_factory, host, port, **options)  # type: ignore[no-any-return]
        with self._network._bound_to(local_addr):
            return await super().create_connection(protocol_factory, host, port, **options)  # type: ignore[no-any-return]

    def sock_connect(self, sock: Any, address: Any) -> Coroutine[Any, Any, None]:
        """See loop.sock_connect(). In a network the socket becomes that of a connection in memory."""
        if self._network is None or not _is_tcp(sock):
            return super().sock_connect(sock, address)  # type: ignore[no-any-return]
        asyncio.base_events._check_ssl_socket(sock)  # type: ignore[attr-defined]
        if self._debug and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        return self._network._connect(sock, address)

    def sock_accept(self, sock: Any) -> Coroutine[Any, Any, tuple[Any, Any]]:
        """See loop.sock_accept(). In a network, raises OSError for a TCP socket: only create_server() can accept."""
        if self._network is not None and _is_tcp(sock):
            message = "a pipe_network() brings no connections to a socket that accepts by itself: use create_server()"
            raise OSError(errno.EOPNOTSUPP, message)
        return super().sock_accept(sock)  # type: ignore[no-any-return]

    def _make_socket_transport(self, sock: Any, *args: Any, **options: Any) -> Any:
        return self._with_names(super()._make_socket_transport, sock, args, options)

    def _make_ssl_transport(self, rawsock: Any, *args: Any, **options: Any) -> Any:
        return self._with_names(super()._make_ssl_transport, rawsock, args, options)

    def _with_names(self, make: Callable[..., Any], sock: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Make a transport that has its addresses in the network."""
        sides = None if self._network is None else self._network._side_of(sock)
        if sides is None:
            return make(sock, *args, **options)
        own, other = sides
        known = NetworkSocket(sock, own.address, other.address)
        extra = {"socket": known, "sockname": own.address, "peername": other.address}
        options["extra"] = {**(options.get("extra") or {}), **extra}
        transport = make(sock, *args, **options)
        own.set_transport(transport)
        # asyncio's transports overwrite these with the socket's. A TLS transport looks into its own dictionary first.
        below = getattr(transport, "_ssl_protocol", transport)
        getattr(below, "_extra", {}).update(extra)
        return transport


def _is_tcp(sock: Any) -> bool:
    tcp = (socket.AF_INET, socket.AF_INET6)
    return getattr(sock, "type", None) == socket.SOCK_STREAM and sock.family in tcp
