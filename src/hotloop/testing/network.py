"""Networks in memory: hosts, the links between them, and their listeners.

While a network is attached to a loop, the loop asks it for names and connections instead of the system (see
networked.py). Everything else is as always: the two sides of a connection are sockets with transports on them.
"""

import asyncio
import contextvars
import errno
import ipaddress
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from hotloop.testing.connection import Connection, Listener, Side
from hotloop.testing.link import UNSET, Fragment, Latency, Links, Name, host_key
from hotloop.testing.number_checks import check_size
from hotloop.testing.ports import Ports
from hotloop.testing.relay import for_each

_T = TypeVar("_T")

BUFFER = 65536
"""The default of `buffer`, in bytes."""

HERE = "localhost"
"""The default host."""

_ALL_ADDRESSES = ("0.0.0.0", "::")

_RETRIES = (1, 2, 4, 8, 16, 32, 64)
"""After how many seconds a client without an answer tries again, as on Linux: tcp(7), tcp_syn_retries."""


class _Place(NamedTuple):
    """Where the code of a context runs, in a network."""

    network: "PipeNetwork | None" = None
    host: str | None = None
    address: str | None = None
    """From which clients connect; None: one of the host's."""
    port: int = 0
    """From which clients connect; 0: any."""


_NOWHERE = _Place()
_place = contextvars.ContextVar("hotloop.testing.place", default=_NOWHERE)


class Delivery(NamedTuple):
    """Data that has arrived: the argument of a network's `trace`."""

    time: float
    """By the loop's clock."""

    connection: int
    """The connection's number."""

    to: str
    """"client" or "server"."""

    data: bytes
    """Empty: the end of the stream."""


class PipeNetwork:
    """A network in memory: see pipe_network(). It is attached to a loop during its `async with` or `with`.

    All times are in seconds, by loop.time(). Methods are for the loop's own thread, or for any thread while the loop
    does not run; otherwise, and after close(), they raise RuntimeError.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None,
        latency: Latency,
        bandwidth: float | None,
        fragment: Fragment,
        buffer: int,
        seed: int | str | None,
        trace: Callable[[Delivery], object] | None,
    ) -> None:
        check_size("buffer", buffer)
        if not (seed is None or isinstance(seed, (int, str))) or isinstance(seed, bool):
            raise TypeError(f"seed must be a number, a string or None, not {seed!r}")
        if not (trace is None or callable(trace)):
            raise TypeError(f"trace must be a function, not {trace!r}")
        self._links = Links(latency=latency, bandwidth=bandwidth, fragment=fragment)
        self._wanted_loop = loop
        self._buffer = buffer
        self._seed = seed
        self._trace = trace
        self._loop: Any = None
        self._closed = False
        self._context = contextvars.Context()
        self._random = random.Random()
        self._hosts: dict[str, tuple[str, ...]] = {HERE: ("127.0.0.1", "::1")}
        self._names = dict.fromkeys(self._hosts[HERE], HERE)
        self._cuts: list[tuple[str, str | None]] = []
        self._listeners: list[Listener] = []
        self._listening: set[int] = set()  # their descriptors
        self._servers: list[asyncio.Server] = []
        self._connections: dict[int, Connection] = {}
        self._made = 0  # the number of connections ever made
        self._sweep_at = 16  # the number of connections at which to look for abandoned ones
        self._sides: WeakKeyDictionary[socket.socket, tuple[Side, Side]] = WeakKeyDictionary()  # own and other
        self._side_at: dict[int, Side] = {}  # by descriptor, as it was when the connection was made
        self._ports = Ports()

    # -- beginning and end ---------------------------------------------------------------------------------------------

    def __enter__(self) -> "PipeNetwork":
        self._check_usable()
        if self._loop is not None:
            raise RuntimeError("this network is attached to a loop already")
        loop: Any = self._wanted_loop or asyncio.get_running_loop()
        if not hasattr(loop, "_attach_network"):
            raise TypeError(f"a pipe_network() needs a loop of hotloop.testing, not {loop!r}")
        loop._attach_network(self)
        self._loop = loop
        self._context = contextvars.copy_context()
        if self._seed is None:
            self._seed = 0 if loop._shuffler is None else loop._shuffler.seed
        self._random.seed(f"{self._seed!r}, network")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "PipeNetwork":
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the network, as the end of an `async with` does: close() it, and let all tasks see the end.

        When this returns, the servers' remaining tasks have run as far as they can at the current time."""
        self.close()
        await asyncio.get_running_loop().clock.advance(0, ignore_holds=True)  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the network, as the end of a `with` does.

        Servers are closed. Data on its way arrives at once, then each side of each connection sees the end of the
        stream; data that a partition or a stall holds is lost. Idempotent.
        """
        if self._closed:
            return
        if self._loop is not None:
            self._loop.clock._check_thread()
        self._closed = True
        for server in self._servers:
            server.close()
        for listener in tuple(self._listeners):
            listener.close()
        for connection in tuple(self._connections.values()):
            connection._flush()
            connection._close(reset=False)
        if self._loop is not None:
            self._loop._detach_network()

    @property
    def seed(self) -> int | str | None:
        """The seed of all random values; None if none was given and the network is not attached to a loop yet."""
        return self._seed

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections, in the order in which they were made. A client that is still connecting has none."""
        self._close_abandoned()
        return tuple(self._connections.values())

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def host(self, name: str, *addresses: str) -> tuple[str, ...]:
        """Add a host, with IPv4 and IPv6 addresses, or with the next free one of 10.0.0.0/8; return its addresses.

        The name resolves to all addresses, in this order. An existing host stays as it is if no other addresses are
        given. Raises ValueError for an invalid address, and for one that another host has.
        """
        self._check_usable()
        if not isinstance(name, str):
            raise TypeError(f"a host's name must be a string, not {name!r}")
        key = host_key(name)
        if not key:
            raise ValueError("a host's name must not be empty")
        known = self._hosts.get(key)
        if known is not None and not addresses:
            return known
        normal = tuple(str(ipaddress.ip_address(address)) for address in addresses) or (self._free_address(name),)
        if known is not None and known != normal:
            raise ValueError(f"the addresses of {name!r} are {known!r} already")
        for address in normal:
            if self._names.get(address, key) != key:
                raise ValueError(f"{address} is an address of {self._names[address]!r} already")
        self._hosts[key] = normal
        self._names.update(dict.fromkeys(normal, key))
        return normal

    def _free_address(self, name: str) -> str:
        with suppress(ValueError):
            # A server may listen at an address that no host has yet.
            return str(ipaddress.ip_address(name))
        address = ipaddress.IPv4Address("10.0.0.1")
        while str(address) in self._names:
            address += 1
        return str(address)

    @contextmanager
    def at(self, host: str) -> Iterator[None]:
        """Code inside this `with`, and in tasks that are created there, runs on that host.

        Connections come from its address, and a server on all addresses is on those of this host. Elsewhere connections
        come from "localhost", and such a server is on every host. The host is added if it does not exist."""
        self.host(host)
        token = _place.set(_Place(self, host_key(host)))
        try:
            yield
        finally:
            _place.reset(token)

    @contextmanager
    def _bound_to(self, address: Any) -> Iterator[None]:
        """Connections inside this `with` come from this address and port; a port of 0 is any."""
        found = self._resolve(address[0], address[1], 0, socket.SOCK_STREAM, 0, 0)[0][4]
        if found[0] not in self._names:
            text = f"error while attempting to bind on address {address!r}: no host of this network has it"
            raise OSError(errno.EADDRNOTAVAIL, text)
        token = _place.set(_Place(self, self._names[found[0]], found[0], found[1]))
        try:
            yield
        finally:
            _place.reset(token)

    def _known(self, name: str) -> str:
        """A host's name or address in its normal form. Raises ValueError if it is unknown."""
        if not isinstance(name, str):
            raise TypeError(f"a host's name or address must be a string, not {name!r}")
        with suppress(ValueError):
            name = str(ipaddress.ip_address(name))
        key = host_key(name)
        if key not in self._hosts and key not in self._names:
            raise ValueError(f"there is no host {name!r} in this network: host() adds one")
        return key

    # -- links ---------------------------------------------------------------------------------------------------------

    def link(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        latency: Latency = UNSET,
        bandwidth: float | None = UNSET,
        fragment: Fragment = UNSET,
        one_way: bool = False,
    ) -> None:
        """Set the link between two hosts; without `b` those between `a` and all others; without both all links.

        Hosts are given by name or by address. Settings that are not given stay as they are, and where several apply,
        the latest decides. They apply to data that is sent from now on; with `one_way` only from `a` to `b`. For the
        values see pipe_network(). Raises ValueError for an unknown host.
        """
        self._check_usable()
        if a is None and b is not None:
            raise ValueError("a link needs its first host, too")
        one, other = [None if name is None else self._known(name) for name in (a, b)]
        settings = {"latency": latency, "bandwidth": bandwidth, "fragment": fragment}
        self._links.set(one, other, **settings)
        if not one_way:
            self._links.set(other, one, **settings)

    def partition(self, a: str, b: str | None = None) -> None:
        """Cut the link between two hosts; without `b`, those between `a` and all others.

        Neither side is told: data on its way, and data that is sent later, waits for heal(). Clients that connect try
        again after 1, 3, 7, 15, 31 and 63 seconds and get TimeoutError after 127, as on Linux. Raises ValueError for an
        unknown host.
        """
        self._check_usable()
        self._cuts.append((self._known(a), None if b is None else self._known(b)))
        self._update()

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End the partition that was made with the same hosts, in either order; without hosts, all partitions.

        Data that was on its way is sent again. Raises ValueError if there is no such partition.
        """
        self._check_usable()
        if a is None and b is not None:
            raise ValueError("heal() needs its first host, too")
        if a is None:
            self._cuts.clear()
        else:
            one, other = self._known(a), None if b is None else self._known(b)
            left = [cut for cut in self._cuts if cut not in ((one, other), (other, one))]
            if left == self._cuts:
                raise ValueError(f"there is no partition of {a!r}" + (f" and {b!r}" if b is not None else ""))
            self._cuts = left
        self._update()

    def _is_cut(self, one: Name, other: Name) -> bool:
        def cuts(a: str, b: str | None, one: Name, other: Name) -> bool:
            return one.is_called(a) and (not other.is_called(a) if b is None else other.is_called(b))

        return any(cuts(a, b, one, other) or cuts(a, b, other, one) for a, b in self._cuts)

    def _update(self) -> None:
        for_each(Connection._update, self._connections.values())

    def _close_abandoned(self) -> None:
        """Close connections whose sides were closed while their relays did not read because too much was held: the
        relays do not notice."""
        for connection in tuple(self._connections.values()):
            connection._close_if_abandoned()
        self._sweep_at = max(16, 2 * len(self._connections))

    # -- names ---------------------------------------------------------------------------------------------------------

    def _resolve(self, host: Any, port: Any, family: int, type: int, proto: int, flags: int) -> list[Any]:
        """What socket.getaddrinfo() would return or raise if the system knew this network."""
        if isinstance(host, bytes):
            host = host.decode("idna")
        if host in (None, ""):
            addresses = ("0.0.0.0", "::") if flags & socket.AI_PASSIVE else self._hosts[HERE]
        else:
            addresses = (host,)
            # The network has no datagrams; they must not go to real hosts of these names.
            if isinstance(host, str) and (type != socket.SOCK_DGRAM or host == HERE):
                addresses = self._hosts.get(host_key(host), addresses)
        # The system's interfaces do not matter, and it must not ask a resolver.
        flags = flags & ~socket.AI_ADDRCONFIG | socket.AI_NUMERICHOST
        infos: list[Any] = []
        error = None
        for address in addresses:
            try:
                infos += socket.getaddrinfo(address, port, family, type, proto, flags)
            except socket.gaierror as failed:
                error = failed
        try:
            if not infos and error is not None:
                raise error
        finally:
            error = None  # it has a reference to this frame
        return infos

    def _name_of(self, sockaddr: tuple[Any, ...], flags: int) -> tuple[str, str]:
        """What socket.getnameinfo() would return or raise if the system knew this network."""
        known = self._names.get(sockaddr[0])
        if known is None and flags & socket.NI_NAMEREQD:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        numeric = known is None or bool(flags & socket.NI_NUMERICHOST)
        flags = flags & ~socket.NI_NAMEREQD | socket.NI_NUMERICHOST
        host, service = socket.getnameinfo(sockaddr, flags)
        return (host if numeric or known is None else known), service

    def _name(self, address: str) -> Name:
        return Name((self._names[address], address))

    def _here(self) -> _Place:
        """The place of the current context, if it is one in this network."""
        place = _place.get()
        return place if place.network is self else _NOWHERE

    # -- servers -------------------------------------------------------------------------------------------------------

    async def _listen(self, hosts: list[Any], port: Any, family: int, flags: int) -> list[Listener]:
        """Make the listeners of a server, which do not listen yet."""
        for host in hosts:
            if isinstance(host, str) and not self._is_somewhere(host):
                # A server adds its host.
                self.host(host)
        found = [self._resolve(host, port, family, socket.SOCK_STREAM, 0, flags) for host in hosts]
        listeners: list[Listener] = []
        try:
            for family, _, _, _, address in dict.fromkeys(info for infos in found for info in infos):
                listeners.append(self._bind(family, address))
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        return listeners

    def _is_somewhere(self, host: str) -> bool:
        """True for a known host, for its addresses, and for the addresses that mean all hosts."""
        with suppress(ValueError):
            host = str(ipaddress.ip_address(host))
        return host in ("", *_ALL_ADDRESSES) or host in self._names or host_key(host) in self._hosts

    def _stand_for(self, sock: socket.socket) -> Listener:
        """Make the listener of a server that was given a real socket."""
        address = sock.getsockname()
        if not self._is_somewhere(address[0]):
            self.host(address[0])
        return self._bind(sock.family, address, sock)

    def _bind(self, family: int, address: tuple[Any, ...], bound: socket.socket | None = None) -> Listener:
        here = self._here().host if address[0] in _ALL_ADDRESSES else None
        if address[1] == 0:
            address = (address[0], self._free_port(errno.EADDRINUSE), *address[2:])
        for other in self._listeners:
            if (other.getsockname(), other.host) == (address, here):
                text = f"error while attempting to bind on address {address!r}: address already in use"
                raise OSError(errno.EADDRINUSE, text)
        listener = Listener(self, family, address, here, bound)
        self._listeners.append(listener)
        self._listening.add(listener.fileno())
        return listener

    def _free_port(self, error_number: int) -> int:
        """A port for a listener or a client. OSError with the number that the kernel has there if there is none."""
        listening = {listener.getsockname()[1] for listener in self._listeners}
        return self._ports.find_free(listening, error_number)

    def _listener_at(self, name: Name, address: tuple[Any, ...]) -> Listener | None:
        """The listener that accepts connections to this address."""
        host, numeric = name
        everywhere = "::" if ":" in numeric else "0.0.0.0"
        listening = {
            (listener.getsockname()[0], listener.host): listener
            for listener in self._listeners
            if listener.listens and listener.getsockname()[1] == address[1]
        }
        for where in ((numeric, None), (everywhere, host), (everywhere, None)):
            if where in listening:
                return listening[where]
        return None

    def _close_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        self._listening.discard(listener.fileno())

    # -- clients -------------------------------------------------------------------------------------------------------

    async def _connect(self, sock: socket.socket, address: Any) -> None:
        """sock_connect() for a TCP socket."""
        address = self._resolve(address[0], address[1], sock.family, sock.type, sock.proto, 0)[0][4]
        if address[0] in _ALL_ADDRESSES:
            # Of a server, it is every address. A client reaches its own host there, as in the kernel.
            address = (self._own_address(sock.family), *address[1:])
        if address[0] not in self._names:
            raise OSError(errno.EHOSTUNREACH, f"no host of this network has the address {address[0]}")
        client_address = self._client_address(sock.family)
        sender, receiver = self._name(client_address[0]), self._name(address[0])
        await self._shake_hands(sender, receiver, address)
        if sock.fileno() < 0:
            raise OSError(errno.EBADF, "the socket was closed while it was being connected")
        with ExitStack() as made:
            client = Side(sender, client_address, self._buffer)
            made.callback(client.close, reset=False)
            server = Side(receiver, address, self._buffer)
            made.callback(server.close, reset=False)
            client.become(sock)
            made.pop_all()
        connection = Connection(self, self._made, client, server)
        self._made += 1
        self._remember(connection, client, server)
        connection._start()
        if len(self._connections) >= self._sweep_at:
            self._close_abandoned()

    def _remember(self, connection: Connection, client: Side, server: Side) -> None:
        self._connections[connection.number] = connection
        self._ports.take(client.address[1])
        for own, other in ((client, server), (server, client)):
            self._sides[own.program_socket()] = own, other
            self._side_at.update(dict.fromkeys(own.descriptors, own))

    def _client_address(self, family: int) -> tuple[Any, ...]:
        address = self._own_address(family)
        rest = (0, 0) if family == socket.AF_INET6 else ()
        return (address, self._here().port or self._free_port(errno.EADDRNOTAVAIL), *rest)

    def _own_address(self, family: int) -> str:
        """The address from which a client of the current context connects."""
        here = self._here()
        if here.address is not None:
            return here.address
        for candidate in self._hosts[here.host or HERE]:
            if (":" in candidate) == (family == socket.AF_INET6):
                return candidate
        raise OSError(errno.ENETUNREACH, f"the host {here.host!r} has no address of this family")

    async def _shake_hands(self, sender: Name, receiver: Name, address: tuple[Any, ...]) -> None:
        """Return when the client is connected; raise OSError if it cannot connect."""
        for seconds in _RETRIES:
            again = self._loop.time() + seconds
            if await self._passes(sender, receiver):
                listener = self._listener_at(receiver, address)
                if await self._passes(receiver, sender):
                    if listener is None:
                        raise ConnectionRefusedError(errno.ECONNREFUSED, f"no server listens at {address!r}")
                    return
            await asyncio.sleep(again - self._loop.time())
            self._check_is_there()
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    async def _passes(self, sender: Name, receiver: Name) -> bool:
        """Let the time of one message from one host to the other pass. False if it is lost."""
        if self._is_cut(sender, receiver):
            return False
        await asyncio.sleep(self._call(self._links.latency, sender, receiver, self._random))
        self._check_is_there()
        return not self._is_cut(sender, receiver)

    def _check_is_there(self) -> None:
        if self._closed:
            raise OSError(errno.ENETDOWN, "the network was closed")

    # -- for connections and the loop ----------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise RuntimeError("the network is closed")
        if self._loop is not None:
            self._loop.clock._check_thread()

    def _call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call a method of the loop in the network's context, which its callbacks then keep, not in the sender's."""
        return self._context.run(function, *args)

    def _note(self, connection: Connection, to: str, data: bytes) -> None:
        if self._trace is None:
            return
        try:
            self._trace(Delivery(self._loop.time(), connection.number, to, data))
        except Exception as error:
            # The data has arrived all the same.
            message = "the trace function of a pipe_network() has failed"
            self._loop.call_exception_handler({"message": message, "exception": error})

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.number]
        self._ports.release(connection.client[1])
        for side in connection._sides.values():
            for fd in side.descriptors:
                if self._side_at.get(fd) is side:
                    del self._side_at[fd]

    def _side_of(self, sock: Any) -> tuple[Side, Side] | None:
        """The side of a connection that a socket belongs to, and the other side."""
        return self._sides.get(sock) if isinstance(sock, socket.socket) else None

    def _has_descriptor(self, fd: int) -> bool:
        """True if the descriptor belongs to this network, so that only this loop sends to it."""
        side = self._side_at.get(fd)
        return fd in self._listening or (side is not None and side.has_descriptor(fd))

    def __repr__(self) -> str:
        state = " closed" if self._closed else " not attached" if self._loop is None else ""
        return f"<{type(self).__name__} hosts={list(self._hosts)!r} connections={len(self._connections)}{state}>"


def pipe_network(
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    latency: Latency = 0.0,
    bandwidth: float | None = None,
    fragment: Fragment = None,
    buffer: int = BUFFER,
    seed: int | str | None = None,
    trace: Callable[[Delivery], object] | None = None,
) -> PipeNetwork:
    """Return a network in memory for a loop of hotloop.testing, to be used in an `async with`, or a `with`.

    Inside it, all TCP of the loop goes through the network instead of the system: create_server(), create_connection(),
    sock_connect(), getaddrinfo(), getnameinfo() and everything based on them. A server adds a host of its name; other
    names are unknown, unless host() has added them.

    `loop` is the loop; None: the loop that is running when the `with` is entered. `latency` is how long data takes from
    one host to another, in seconds: a number, a tuple (lowest, highest), or a function that is called with a
    random.Random for each piece. `bandwidth` is in bytes per second, for each direction of each connection; None: no
    limit. `fragment` is the size of the pieces that arrive, in bytes, given like the latency; None: as they were
    written. `buffer` is how many bytes are on their way in each direction before the sender has to wait; the sockets at
    both ends take about as much again. `seed` seeds all random values; None: the loop's `shuffle`, or 0. `trace` is
    called with a Delivery for all data that arrives.

    Raises ValueError for NaN, infinity, a negative latency, and a bandwidth, fragment or buffer that is not positive;
    TypeError for a value that is no number. Entering it raises TypeError if the loop is not one of hotloop.testing, and
    RuntimeError if the loop has a network already.
    """
    return PipeNetwork(
        loop=loop, latency=latency, bandwidth=bandwidth, fragment=fragment, buffer=buffer, seed=seed, trace=trace
    )
