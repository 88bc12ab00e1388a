"""TLS transports of the loop under test, each with a peer that is OpenSSL between two memory BIOs and a plain socket.
So a test decides when the peer answers, what the kernel buffers, and what is sent instead."""

import asyncio
import contextlib
import dataclasses
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.certificates import HOST, Certificates
from support.recording import BufferedRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import HAS_UNIX, connected_sockets, reset, sockets_of, wait_for

SIDES = ["server", "client"]
every_side = pytest.mark.parametrize("side", SIDES)
ANY_KIND = "pair" if HAS_UNIX else "tcp"

# Sizes in bytes. asyncio's TLS buffers 512 KiB before it pauses its protocol; the transport below and the kernel add to
# that.
PIECE = 64 << 10
MORE_THAN_IS_BUFFERED = 32 << 20
WANTS_MORE = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
# The reason why a test leaves out asyncio's transports.
AT_THE_END = "when the end comes it fills a buffered protocol's buffer once more, and drops what does not go in"


class ViewRecorder(BufferedRecorder):
    """Its buffer is a memoryview: asyncio's TLS slices the buffer from the second record on, and would fill copies of a
    bytearray."""

    def __init__(self, size: int = 65536, **hooks: Callable[[], Any]) -> None:
        super().__init__(size, **hooks)
        self.buffer = memoryview(self.buffer)


RECORDERS = [Recorder, ViewRecorder]
every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)


def other(side: str) -> str:
    return "client" if side == "server" else "server"


def run_until_or_error(loop: asyncio.AbstractEventLoop, happened: Callable[[], object]) -> None:
    """Run until `happened()`, or raise its exception, which the loop would only report."""
    errors: list[BaseException] = []

    def look() -> object:
        try:
            return happened()
        except BaseException as error:
            errors.append(error)
            return True

    run_until(loop, look)
    if errors:
        raise errors[0]


class Peer:
    """The other end. Every call does what it can without waiting. None: it needs more data from the loop's end."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, side: str, session: ssl.SSLSession | None = None
    ) -> None:
        self.socket = sock
        self.opposite: Any = None  # the socket that was given to the loop
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = HOST if side == "client" else None
        self.tls = context.wrap_bio(self.incoming, self.outgoing, side == "server", name, session)
        self.unsent = bytearray()
        self.received = bytearray()  # application data
        self.saw_close_notify = False
        self.saw_end = False  # the end of the plain stream, or a reset
        self.handshake_complete = False
        self.handshake_failed = False

    def push(self) -> None:
        """Send as much as the socket takes now."""
        self.unsent += self.outgoing.read()
        with contextlib.suppress(OSError):
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]

    def pump(self) -> None:
        """Move as much as possible between the BIOs and the socket."""
        self.push()
        try:
            while not self.saw_end and self.socket.fileno() != -1:
                data = self.socket.recv(1 << 18)
                self.incoming.write(data) if data else self.note_end()
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.note_end()

    def note_end(self) -> None:
        self.saw_end = True
        self.incoming.write_eof()

    def attempt(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        self.pump()
        try:
            return operation(*arguments)
        except WANTS_MORE:
            return None
        finally:
            self.pump()

    def handshake(self) -> bool:
        """Go on with the handshake, unless it has failed. Returns whether it is complete. Raises OpenSSL's error once:
        what OpenSSL says after a failure depends on the errno of the last system call."""
        if self.handshake_failed:
            self.pump()
        elif not self.handshake_complete:
            self.pump()
            try:
                self.tls.do_handshake()
                self.handshake_complete = True
            except WANTS_MORE:
                pass
            except (ssl.SSLEOFError, ssl.SSLSyscallError, ConnectionError):
                # Which one depends on what OpenSSL was doing at the end, and on that errno.
                self.handshake_failed = True
                assert self.saw_end
            except ssl.SSLError:
                self.handshake_failed = True
                raise
            finally:
                self.pump()
        return self.handshake_complete

    def read(self) -> None:
        """Read all data that has arrived into `received`. At an end without close_notify, only `saw_end` is set."""
        while True:
            try:
                data = self.attempt(self.tls.read, 1 << 20)
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLEOFError:
                return
            if data is None:
                return
            if not data:
                self.saw_close_notify = True
                return
            self.received += data

    def write(self, data: bytes) -> None:
        """Encrypt all of `data`, and send as much as the socket takes now. Nothing is read."""
        for begin in range(0, len(data), 1 << 18):
            self.tls.write(data[begin : begin + (1 << 18)])
        self.push()

    def notify_close(self) -> None:
        """Send close_notify, without waiting for that of the other end."""
        with contextlib.suppress(ssl.SSLError):  # such as for an answer with data instead of close_notify
            self.attempt(self.tls.unwrap)

    def encrypted(self, data: bytes) -> bytes:
        """The records that carry `data`; they are not sent."""
        self.push()
        assert not self.unsent
        assert self.tls.write(data) == len(data)
        return self.outgoing.read()

    def send_raw(self, data: bytes) -> None:
        """Send bytes without OpenSSL. They must fit into the socket's buffer."""
        self.push()
        assert not self.unsent
        assert self.socket.send(data) == len(data)


@dataclasses.dataclass
class TlsConnection:
    """A TLS transport, its first protocol, and the peer."""

    loop: asyncio.SelectorEventLoop
    transport: asyncio.Transport
    protocol: Any
    peer: Peer
    socket: Any  # the TransportSocket; None if the connection ended before it was known

    @property
    def is_gone(self) -> bool:
        return self.socket is None or self.socket.fileno() == -1

    def run_until(self, happened: Callable[[], object], peer_reads: bool = True) -> None:
        """Run until `happened()`; meanwhile the peer reads and sends, or only sends."""

        def look() -> object:
            if peer_reads:
                self.peer.read()
            else:
                self.peer.push()
            return happened()

        run_until_or_error(self.loop, look)

    def send(self, data: bytes) -> None:
        """Have the peer send all of `data`, and wait until it has arrived. It must fit into the kernel's buffers."""
        self.peer.write(data)
        assert not self.peer.unsent, "the kernel takes no more"
        wait_for(self.socket, select.POLLIN)

    def deliver(self, data: bytes) -> None:
        """Have the peer send `data`, and run until the protocol has got it."""
        expected = len(self.protocol.received) + len(data)
        self.peer.write(data)
        self.run_until(lambda: len(self.protocol.received) >= expected)
        assert self.protocol.received[-len(data) :] == data

    def receive(self, count: int) -> bytes:
        """Run until the peer has `count` bytes, or all there are; return what it has received since the last time."""
        self.run_until(lambda: len(self.peer.received) >= count or self.peer.saw_close_notify or self.peer.saw_end)
        received = bytes(self.peer.received)
        self.peer.received.clear()
        return received

    def fill(self) -> int:
        """Write until the protocol stays paused; return how much was written. The peer does not read."""
        written = 0
        while not self.writing_paused:
            assert written < MORE_THAN_IS_BUFFERED, "pause_writing() does not come"
            self.transport.write(b"f" * PIECE)
            written += PIECE
            run_once(self.loop, 5 if self.writing_paused else 1)  # the kernel may take more after all
        return written

    @property
    def writing_paused(self) -> bool:
        return self.protocol.calls.count("pause_writing") > self.protocol.calls.count("resume_writing")

    def end(self) -> None:
        """Have the peer half-close the plain connection, and wait until that has arrived."""
        self.peer.pump()
        self.peer.socket.shutdown(socket.SHUT_WR)
        wait_for(self.socket, select.POLLIN)

    def reset(self) -> None:
        """Have the peer reset the connection, and wait until that has arrived. For kind "tcp"."""
        assert self.peer.socket.family == socket.AF_INET
        reset(self.peer.socket)
        wait_for(self.socket, 0)

    def run_until_lost(self, peer_reads: bool = True) -> None:
        """Run until connection_lost(), with a peer that answers close_notify if it reads at all."""

        def lost() -> bool:
            if peer_reads and self.peer.saw_close_notify:
                self.peer.notify_close()
            return self.protocol.lost

        self.run_until(lost, peer_reads)


class TlsConnections:
    """Makes TLS connections on a loop and closes them. It keeps the reports to the loop's exception handler for the
    test; a report that the test does not take is a failure."""

    def __init__(self, loop: asyncio.SelectorEventLoop, certificates: Certificates) -> None:
        self.loop = loop
        self.certificates = certificates
        self.reports: list[dict[str, Any]] = []
        self.opened: list[TlsConnection] = []
        loop.set_exception_handler(lambda loop, context: self.reports.append(context))

    def begin(
        self,
        side: str = "server",
        protocol: Any = None,
        kind: str = ANY_KIND,
        version: ssl.TLSVersion | None = None,
        context: ssl.SSLContext | None = None,
        peer_context: ssl.SSLContext | None = None,
        **options: Any,
    ) -> tuple[asyncio.Task[Any], Peer, Any]:
        """The task that makes the loop's end, its peer, and the protocol, before any data is sent. `side` is the loop's
        side."""
        protocol = Recorder() if protocol is None else protocol
        ours, theirs = sockets_of(self.loop) if kind == "tcp" else connected_sockets(kind)
        context = context or self.certificates.context(side, version)
        peer_context = peer_context or self.certificates.context(other(side), version)
        if side == "client":
            options.setdefault("server_hostname", HOST)
            making = self.loop.create_connection(lambda: protocol, sock=ours, ssl=context, **options)
        else:
            making = self.loop.connect_accepted_socket(lambda: protocol, ours, ssl=context, **options)
        peer = Peer(theirs, peer_context, other(side))
        peer.opposite = ours
        return self.loop.create_task(making), peer, protocol

    def open(self, side: str = "server", protocol: Any = None, **options: Any) -> TlsConnection:
        """A connection whose handshake is complete on both ends, after connection_made()."""
        making, peer, protocol = self.begin(side, protocol, **options)

        def made() -> bool:
            through = peer.handshake() or peer.saw_end
            return making.done() and (through or making.exception() is not None)

        try:
            run_until_or_error(self.loop, made)
            transport, _ = making.result()
        except BaseException:
            making.cancel()
            peer.socket.close()
            peer.opposite.close()  # a call that was refused has not taken the socket
            raise
        return self.adopt(transport, protocol, peer)

    def adopt(self, transport: asyncio.Transport, protocol: Any, peer: Peer) -> TlsConnection:
        connection = TlsConnection(self.loop, transport, protocol, peer, transport.get_extra_info("socket"))
        self.opened.append(connection)
        return connection

    def failure(self, making: asyncio.Task[Any], peer: Peer) -> Exception:
        """The exception with which a handshake fails, while the peer goes on with it as far as it can."""

        def failed() -> bool:
            with contextlib.suppress(ssl.SSLError):
                peer.handshake()
            return making.done()

        run_until_or_error(self.loop, failed)
        run_once(self.loop, 3)
        with pytest.raises(Exception) as caught:
            making.result()
        peer.socket.close()
        return caught.value

    def take_reports(self) -> list[dict[str, Any]]:
        taken, self.reports = self.reports, []
        return taken

    def close(self) -> None:
        for connection in self.opened:
            if not connection.is_gone:
                connection.transport.abort()
            connection.peer.socket.close()
        for connection in self.opened:
            run_until(self.loop, lambda connection=connection: connection.is_gone)
            run_once(self.loop, 3)
            if hasattr(connection.protocol, "check_life_cycle"):
                connection.protocol.check_life_cycle()
        assert not self.reports, f"the exception handler was called: {self.reports}"


@contextlib.contextmanager
def tls_connections_on(loop: asyncio.SelectorEventLoop, certificates: Certificates) -> Iterator[TlsConnections]:
    connections = TlsConnections(loop, certificates)
    try:
        yield connections
    finally:
        connections.close()


def numbered(size):
    """`size` bytes in which each position differs from those nearby."""
    return b"".join(b"%07d;" % number for number in range(size // 8 + 1))[:size]


class UpgradableConnection:
    """A plain connection of the loop and its peer, both of which can be upgraded to TLS."""

    def __init__(self, tls, side, protocol=None, kind="tcp", version=None):
        self.tls, self.side, self.version = tls, side, version
        self.loop = tls.loop
        self.protocol = Recorder() if protocol is None else protocol
        ours, self.socket = connected_sockets(kind)
        self.transport, _ = self.loop.run_until_complete(self.loop.create_connection(lambda: self.protocol, sock=ours))

    def begin(self, context=None, **options):
        """The task that upgrades the loop's end, and the peer, which has sent nothing."""
        certificates = self.tls.certificates
        options.setdefault("server_side", self.side == "server")
        if self.side == "client":
            options.setdefault("server_hostname", HOST)
        context = context or certificates.context(self.side, self.version)
        upgrading = self.loop.start_tls(self.transport, self.protocol, context, **options)
        peer = Peer(self.socket, certificates.context(other(self.side), self.version), other(self.side))
        return self.loop.create_task(upgrading), peer

    def upgrade(self, **options):
        upgrading, peer = self.begin(**options)
        run_until(self.loop, lambda: peer.handshake() and upgrading.done())
        return self.tls.adopt(upgrading.result(), self.protocol, peer)

    def run_until_lost(self):
        """For a connection that never became TLS."""
        run_until(self.loop, lambda: self.protocol.lost)
        self.socket.close()
