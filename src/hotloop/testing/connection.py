"""Connections of a pipe_network(), and the sockets of both their sides."""

import errno
import os
import select
import socket
import sys
from asyncio import trsock
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from hotloop.testing.link import Name
from hotloop.testing.relay import Pipe, for_each

if TYPE_CHECKING:
    from hotloop.testing.network import PipeNetwork

_CLOSING_RESETS = sys.platform == "linux"
"""Whether closing a Unix socket that holds unread data resets its peer."""

_NETWORK_LEVELS = (socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6)
"""The levels of options that Unix sockets do not have."""


class Side:
    """One side of a connection: a pair of sockets, one for the program and the other for the relay."""

    def __init__(self, name: Name, address: tuple[Any, ...], buffer: int) -> None:
        self.name = name
        self.address = address
        self.taken: socket.socket | None  # the program's socket, until hand_out()
        self.taken, self.relay = socket.socketpair()
        for sock in (self.taken, self.relay):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        self._socket = ref(self.taken)
        self._transport: Any = None  # a weak reference
        self.descriptors = (self.taken.fileno(), self.relay.fileno())  # as they were when the connection was made

    def hand_out(self) -> socket.socket:
        """Give the program its socket, which belongs to it from now on."""
        sock, self.taken = self.taken, None
        assert sock is not None
        return sock

    def become(self, sock: socket.socket) -> None:
        """Make the program's own socket this side's socket; object and descriptor stay the same."""
        timeout = sock.gettimeout()
        with self.hand_out() as own:
            os.dup2(own.fileno(), sock.fileno(), inheritable=os.get_inheritable(sock.fileno()))
        # There is no other way to change the family of a socket object.
        socket.socket.__init__(sock, fileno=sock.detach())
        sock.settimeout(timeout)
        self._socket = ref(sock)
        self.descriptors = (sock.fileno(), self.relay.fileno())

    def set_transport(self, transport: Any) -> None:
        self._transport = ref(transport)

    def program_socket(self) -> socket.socket:
        """The socket that the program has or will have. For the time of connecting, when it is sure to exist."""
        sock = self._socket()
        assert sock is not None
        return sock

    def has_descriptor(self, fd: int) -> bool:
        """True if `fd` is the descriptor of either end and that end is open."""
        sock = self._socket()
        return fd == self.relay.fileno() or (sock is not None and fd == sock.fileno())

    def is_closed(self) -> bool:
        """True if the program has closed its socket or shut it down in both directions: the relay's has a hang-up."""
        poller = select.poll()
        poller.register(self.relay, 0)
        return self.taken is None and any(event & select.POLLHUP for _, event in poller.poll(0))

    def close(self, *, reset: bool) -> None:
        """Close it: the program sees the end of the stream, or a reset."""
        if reset:
            self._reset()
        self.relay.close()
        if self.taken is not None:
            self.taken.close()

    def _reset(self) -> None:
        sock, transport = self._socket(), self._transport and self._transport()
        with suppress(OSError):
            # Closing the relay's socket with unread data in it resets the program's.
            if _CLOSING_RESETS and sock is not None and sock.fileno() >= 0 and self._makes_unread(sock):
                return
        # On Python 3.11, asyncio's TLS transport has no protocol after its second close(), and its method fails.
        if transport is not None and getattr(transport, "_ssl_protocol", transport) is not None:
            transport._force_close(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    @staticmethod
    def _makes_unread(sock: socket.socket) -> bool:
        """Send the relay a byte that it does not read. OSError if the program has shut its socket down for writing."""
        with suppress(BlockingIOError):  # enough is unread already
            sock.send(b"\0")
        return True


class NetworkSocket(trsock.TransportSocket):
    """The socket that a transport shows: with the family and the addresses that it has in the network.

    It stores the options of TCP and IP, which have no effect here."""

    __slots__ = ("_address", "_options", "_peer")

    def __init__(self, sock: socket.socket, address: tuple[Any, ...], peer: tuple[Any, ...]) -> None:
        super().__init__(sock)
        self._address, self._peer = address, peer
        self._options: dict[tuple[int, int], Any] = {}  # by level and option

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET if len(self._address) == 2 else socket.AF_INET6

    @property
    def proto(self) -> int:
        return socket.IPPROTO_TCP

    def getsockname(self) -> tuple[Any, ...]:
        return self._address

    def getpeername(self) -> tuple[Any, ...]:
        return self._peer

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        if level in _NETWORK_LEVELS:
            self._options[level, option] = value[0]
        else:
            super().setsockopt(level, option, *value)

    def getsockopt(self, level: int, option: int, *size: int) -> Any:
        if level in _NETWORK_LEVELS:
            return self._options.get((level, option), 0)
        return super().getsockopt(level, option, *size)


class Connection:
    """A connection between a client and a server of a network."""

    def __init__(self, network: "PipeNetwork", number: int, client: Side, server: Side) -> None:
        self._network = network
        self._number = number
        self._sides = {"client": client, "server": server}
        self._stalled = self._closed = False
        self._to_server = Pipe(self, "server", client.name, server.name, client.relay, server.relay)
        self._to_client = Pipe(self, "client", server.name, client.name, server.relay, client.relay)

    @property
    def number(self) -> int:
        """The number of the connection in its network, counted from 0."""
        return self._number

    @property
    def client(self) -> tuple[Any, ...]:
        """The client's address, the "peername" of the server's transport."""
        return self._sides["client"].address

    @property
    def server(self) -> tuple[Any, ...]:
        """The address to which the client has connected."""
        return self._sides["server"].address

    @property
    def closed(self) -> bool:
        """True when both directions have ended, or after reset(). Also if both sides have closed it while nothing
        passes: then there is no side left that could notice."""
        return self._closed

    def reset(self) -> None:
        """Break the connection at once, for both sides; data on its way is lost.

        A side that reads gets ConnectionResetError, one that writes first BrokenPipeError."""
        self._network._check_usable()
        self._close(reset=True)

    def stall(self) -> None:
        """Stop the connection: nothing arrives from now on, not even data on its way, and neither side is told."""
        self._network._check_usable()
        self._stalled = True
        self._update()

    def resume(self) -> None:
        """Undo stall(). Data that was on its way is sent again."""
        self._network._check_usable()
        self._stalled = False
        self._update()

    def _start(self) -> None:
        self._to_server.put(self._arrive)
        for pipe in (self._to_server, self._to_client):
            pipe.start()

    def _arrive(self) -> None:
        """The client's request to connect has reached the server."""
        side = self._sides["server"]
        listener = self._network._listener_at(side.name, side.address)
        if listener is None:
            self._refuse()
        else:
            listener.add(self, side.hand_out())

    def _refuse(self) -> None:
        """No listener on the server will accept the connection."""
        self._to_server.stop()
        self._to_client.send_reset()

    def _other(self, pipe: Pipe) -> Pipe:
        return self._to_client if pipe is self._to_server else self._to_server

    def _is_held(self) -> bool:
        return self._stalled or self._network._is_cut(*(side.name for side in self._sides.values()))

    def _update(self) -> None:
        held = self._is_held()
        for pipe in (self._to_server, self._to_client):
            pipe.hold(held)
        self._close_if_abandoned()

    def _close_if_abandoned(self) -> None:
        """Close it if both sides are closed and data is held between them, which cannot arrive any more."""
        if not self._closed and self._is_held() and all(side.is_closed() for side in self._sides.values()):
            self._close(reset=False)

    def _close_if_ended(self) -> None:
        if self._to_server.ended and self._to_client.ended:
            self._close(reset=False)

    def _close(self, *, reset: bool) -> None:
        if self._closed:
            return
        self._closed = True
        for pipe in (self._to_server, self._to_client):
            pipe.stop()
        for side in self._sides.values():
            side.close(reset=reset)
        self._network._forget(self)

    def _flush(self) -> None:
        for pipe in (self._to_server, self._to_client):
            pipe.flush()

    def __repr__(self) -> str:
        state = " closed" if self._closed else " stalled" if self._stalled else " cut" if self._is_held() else ""
        (client, _), (server, _) = (side.name for side in self._sides.values())
        ends = f"{client}:{self.client[1]} to {server}:{self.server[1]}"
        sizes = f"{self._to_server.on_the_way} and {self._to_client.on_the_way} bytes on their way"
        return f"<{type(self).__name__} {self._number}{state} {ends}, {sizes}>"


class Listener(socket.socket):
    """A socket from which asyncio can accept connections: it is readable while any are waiting.

    It is one end of a pair; the other end sends a byte to make it readable."""

    def __init__(
        self,
        network: "PipeNetwork",
        family: int,
        address: tuple[Any, ...],
        host: str | None,
        bound: socket.socket | None = None,
    ) -> None:
        self.bound = bound  # the program's own socket in whose place it is, which keeps its port
        self._network: PipeNetwork | None = network
        self._family = socket.AddressFamily(family)
        self._address = address
        self.host = host  # the host of a listener on all addresses; None: every host, or `address` says it
        self.listens = False
        self._waiting: deque[tuple[Connection, socket.socket]] = deque()
        own, self._bell = socket.socketpair()
        super().__init__(own.family, own.type, own.proto, own.detach())
        self.setblocking(False)

    @property
    def family(self) -> socket.AddressFamily:
        return self._family

    def getsockname(self) -> tuple[Any, ...]:
        return self._address

    def listen(self, backlog: int = 0, /) -> None:
        self.listens = True

    def add(self, connection: Connection, sock: socket.socket) -> None:
        """Add a connection, with the server's socket, to those that wait to be accepted."""
        if not self._waiting:
            self._bell.send(b"\0")
        self._waiting.append((connection, sock))

    def accept(self) -> tuple[socket.socket, tuple[Any, ...]]:
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        connection, sock = self._waiting.popleft()
        if not self._waiting:
            self.recv(1)
        return sock, connection.client

    def close(self) -> None:
        """Close it; connections that were not accepted are reset."""
        if self._network is not None:
            self._network._close_listener(self)
            self._network = None
        waiting, self._waiting = self._waiting, deque()
        if self.bound is not None:
            self.bound.close()
        self._bell.close()
        super().close()
        for _, sock in waiting:
            sock.close()
        for_each(Connection._refuse, [connection for connection, _ in waiting])
