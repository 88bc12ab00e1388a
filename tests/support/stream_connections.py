"""Stream transports of the loop under test, each with a plain socket as its peer, which only the test uses."""

import asyncio
import contextlib
import dataclasses
import select
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.recording import Recorder
from support.stepping import run_once, run_until

HAS_UNIX = hasattr(socket, "AF_UNIX")
KINDS = ["tcp", *(["unix", "pair"] if HAS_UNIX else [])]

# Sizes in bytes. Unless they are set, Linux lets the two buffers of a TCP connection grow to some ten megabytes.
SOCKET_BUFFER = 128 << 10
MORE_THAN_FITS = 2 << 20


def _listener(kind: str, folder: str) -> socket.socket:
    if kind == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(Path(folder, "socket")))
    else:
        # With the protocol, as in getaddrinfo()'s results: asyncio sets TCP_NODELAY on no other sockets.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def connected_sockets(kind: str) -> tuple[socket.socket, socket.socket]:
    """Two connected, non-blocking stream sockets: the one that connected and the one that was accepted. The kernel
    buffers less than MORE_THAN_FITS between them."""
    if kind == "pair":
        ours, peer = socket.socketpair()
    else:
        with tempfile.TemporaryDirectory() as folder, _listener(kind, folder) as listener:
            ours = socket.socket(listener.family, listener.type, listener.proto)
            for sock in (ours, listener):  # an accepted socket inherits the listener's
                _set_buffers(sock)
            ours.connect(listener.getsockname())
            peer, _ = listener.accept()
    ours.setblocking(False)
    peer.setblocking(False)
    return ours, peer


def sockets_of(loop: asyncio.SelectorEventLoop) -> tuple[socket.socket, socket.socket]:
    """The same over TCP, but the loop makes the first socket, as create_connection() does for a host and a port. No
    program holds it, so the transport may delay writes until the end of a turn."""
    with tempfile.TemporaryDirectory() as folder, _listener("tcp", folder) as listener:
        _set_buffers(listener)
        kind = (listener.family, listener.type, listener.proto, "")
        ours = loop.run_until_complete(loop._connect_sock([], (*kind, listener.getsockname())))  # type: ignore[attr-defined]
        _set_buffers(ours)
        peer, _ = listener.accept()
    peer.setblocking(False)
    return ours, peer


def _set_buffers(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)


def wait_for(sock: Any, events: int) -> None:
    """Block until the kernel reports one of `events` (select.POLLIN, ...); errors and hang-ups always count."""
    poll = select.poll()
    poll.register(sock.fileno(), events)
    poll.poll()


def reset(sock: socket.socket) -> None:
    """Close a socket so that the other end gets a reset. A Unix socket does so if it has unread data."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


counts_segments = pytest.mark.skipif(sys.platform != "linux", reason="counts segments with Linux's TCP_INFO")
# struct tcp_info of linux/tcp.h: 8 octets, 24 32-bit and 4 64-bit fields, then segs_out, segs_in, notsent_bytes,
# min_rtt, data_segs_in, data_segs_out.
_DATA_SEGMENTS_OUT = 156


def data_segments(sock: Any) -> int:
    """How many segments with data a TCP socket has sent. Without Nagle's algorithm a system call whose data is taken in
    full makes at least one, and one that fits into a segment makes exactly one."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_SEGMENTS_OUT + 4)
    segments: int = struct.unpack_from("I", info, _DATA_SEGMENTS_OUT)[0]
    return segments


@dataclasses.dataclass
class Connection:
    """A transport, its first protocol, and the socket at the other end."""

    loop: asyncio.SelectorEventLoop
    transport: asyncio.Transport
    protocol: Any
    peer: socket.socket
    socket: Any  # the TransportSocket

    def send(self, data: bytes) -> None:
        """Send all of `data` from the peer, and wait until it has arrived. It must fit into the socket's buffer."""
        assert self.peer.send(data) == len(data)
        wait_for(self.socket, select.POLLIN)

    def end(self) -> None:
        """Half-close the peer's side, and wait until that has arrived."""
        self.peer.shutdown(socket.SHUT_WR)
        wait_for(self.socket, select.POLLIN)

    def reset(self) -> None:
        """Reset the connection from the peer's side, and wait until that has arrived."""
        if self.peer.family == getattr(socket, "AF_UNIX", None) and not select.select([self.peer], [], [], 0)[0]:
            with self.socket.dup() as ours:
                ours.send(b"unread")
        reset(self.peer)
        wait_for(self.socket, 0)

    def receive(self, count: int) -> bytes:
        """Run the loop until the peer has read `count` bytes, or all there are before the end."""
        received = bytearray()

        def enough() -> bool:
            while len(received) < count:
                data = self.peer_read(count - len(received))
                if data is None:
                    return False
                if not data:
                    return True
                received.extend(data)
            return True

        run_until(self.loop, enough)
        return bytes(received)

    def peer_read(self, count: int) -> bytes | None:
        """Read once from the peer, at most `count` bytes: b"" at the end or after a reset, None if there is nothing."""
        try:
            return self.peer.recv(min(count, 1 << 20))
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def receive_all(self) -> bytes:
        """Run the loop until the peer has read everything up to the end."""
        return self.receive(1 << 40)

    def fill(self) -> int:
        """Write until the kernel takes no more; return how much was written. The loop must not be running."""
        self.transport.write(b"f" * MORE_THAN_FITS)
        written = MORE_THAN_FITS
        before = 0
        while before != (before := self.transport.get_write_buffer_size()):
            run_once(self.loop, 2)
        assert before, "the kernel took everything"
        return written

    def run_until_lost(self) -> None:
        run_until(self.loop, lambda: self.protocol.lost)


class Connections:
    """Makes connections on a loop and closes them. It keeps the reports to the loop's exception handler for the test;
    a report that the test does not take is a failure."""

    def __init__(self, loop: asyncio.SelectorEventLoop) -> None:
        self.loop = loop
        self.reports: list[dict[str, Any]] = []
        self.opened: list[Connection] = []
        loop.set_exception_handler(lambda loop, context: self.reports.append(context))

    def open(self, kind: str = "pair", protocol: Any = None) -> Connection:
        """A connection after connection_made(). The default protocol is a Recorder."""
        return self.over(*(sockets_of(self.loop) if kind == "tcp" else connected_sockets(kind)), protocol)

    def over(self, ours: socket.socket, peer: socket.socket, protocol: Any = None) -> Connection:
        protocol = Recorder() if protocol is None else protocol
        transport, _ = self.loop.run_until_complete(self.loop.create_connection(lambda: protocol, sock=ours))
        connection = Connection(self.loop, transport, protocol, peer, transport.get_extra_info("socket"))
        self.opened.append(connection)
        return connection

    def take_reports(self) -> list[dict[str, Any]]:
        taken, self.reports = self.reports, []
        return taken

    def close(self) -> None:
        for connection in self.opened:
            if connection.socket.fileno() != -1:
                connection.transport.abort()
            connection.peer.close()
        for connection in self.opened:
            run_until(self.loop, lambda connection=connection: connection.socket.fileno() == -1)
            if hasattr(connection.protocol, "check_life_cycle"):
                connection.protocol.check_life_cycle()
        assert not self.reports, f"the exception handler was called: {self.reports}"


@contextlib.contextmanager
def connections_on(loop: asyncio.SelectorEventLoop) -> Iterator[Connections]:
    connections = Connections(loop)
    try:
        yield connections
    finally:
        connections.close()


# From 3.15 on (python/cpython#140947) asyncio's transports run their callbacks in a context of their own, and a context
# cannot be entered within itself.
called_within_itself = pytest.mark.only(
    "c",
    *(["python", "asyncio"] if sys.version_info < (3, 15) else []),
    reason="asyncio's transports of CPython 3.15 cannot be called within one of their callbacks",
)


def assert_only_refused(reports: list[dict[str, Any]]) -> None:
    """The loop may refuse to call a callback within itself, once or in each turn."""
    assert {str(report["exception"]).split(":")[0] for report in reports} <= {"cannot enter context"}


def is_asyncio_transport(transport: object) -> bool:
    """Whether the transport is the standard library's or a subclass, as those of the pure implementation are."""
    modules = [base.__module__ for base in type(transport).__mro__]
    return modules[0].startswith("asyncio.") or "asyncio.selector_events" in modules


class WritingData(bytearray):
    """Data that writes to its transport when it is asked for its memory, which Python code can from 3.12 on."""

    def __init__(self, transport: asyncio.Transport, first: bytes, data: bytes) -> None:
        super().__init__(data)
        self.transport = transport
        self.first = first

    def __buffer__(self, flags: int) -> memoryview:
        if self.first:
            first, self.first = self.first, b""
            self.transport.write(first)
        return super().__buffer__(flags)


def skip_on_asyncio(transport: object, cause: str, *, mended: bool = False) -> None:
    """Skip the test on asyncio's own transport, which has the fault that `cause` describes.

    `mended`: the subclass of the pure implementation does not have it."""
    if is_asyncio_transport(transport) and not (mended and type(transport).__module__.startswith("hotloop.")):
        pytest.skip(f"asyncio's own transport: {cause}")
