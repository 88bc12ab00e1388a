"""TLS transports of the loop under test, each with a peer that only the test moves: OpenSSL between two memory BIOs
and a plain socket. So a test decides when the peer answers, what the kernel holds, and what is sent in its place."""

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

# Sizes in bytes. asyncio's TLS takes 512 KiB before it pauses its protocol; more lies below it and in the kernel.
PIECE = 64 << 10
MORE_THAN_ANYBODY_TAKES = 32 << 20
WANTS_MORE = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Why a test leaves asyncio's transports out.
AT_THE_END = "when the end comes it fills a buffered protocol's buffer once more, and drops what does not go in"


class ViewRecorder(BufferedRecorder):
    """Offers a view: of a bytearray, asyncio's TLS fills slices, which are copies, from the second record on."""

    def __init__(self, size: int = 65536, **hooks: Callable[[], Any]) -> None:
        super().__init__(size, **hooks)
        self.buffer = memoryview(self.buffer)


RECORDERS = [Recorder, ViewRecorder]
every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)


def other(side: str) -> str:
    return "client" if side == "server" else "server"


def run_until_or_error(loop: asyncio.AbstractEventLoop, happened: Callable[[], object]) -> None:
    """Run until `happened()`, or raise what it raises: the loop would only report that, and run on."""
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
    """The other end. Every call does what it can without waiting; None says that it needs more from our end first."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, side: str, session: ssl.SSLSession | None = None
    ) -> None:
        self.socket = sock
        self.opposite: Any = None  # the socket of our end, as it was given to the loop
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = HOST if side == "client" else None
        self.tls = context.wrap_bio(self.incoming, self.outgoing, side == "server", name, session)
        self.unsent = bytearray()
        self.received = bytearray()  # application data
        self.saw_close_notify = False
        self.saw_end = False  # of the plain stream, be it a reset
        self.shaken = False  # hands

    def push(self) -> None:
        """Send as much as goes now."""
        self.unsent += self.outgoing.read()
        with contextlib.suppress(OSError):
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]

    def pump(self) -> None:
        """Move what can be moved between the BIOs and the socket."""
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

    def shake(self) -> bool:
        """Whether the handshake is complete, after a step further."""
        if not self.shaken:
            self.pump()
            try:
                self.tls.do_handshake()
                self.shaken = True
            except WANTS_MORE:
                pass
            except (ssl.SSLEOFError, ssl.SSLSyscallError, ConnectionError):
                # Which it is depends on what OpenSSL was doing at the end, and on what errno the last system call left.
                assert self.saw_end
            finally:
                self.pump()
        return self.shaken

    def read(self) -> None:
        """Take in all that has come: data into `received`. The end without close_notify is `saw_end` alone."""
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
        """Encrypt all of `data`, and send as much as goes now. Nothing is read."""
        for begin in range(0, len(data), 1 << 18):
            self.tls.write(data[begin : begin + (1 << 18)])
        self.push()

    def notify_close(self) -> None:
        """Send close_notify, without waiting for the other's."""
        with contextlib.suppress(ssl.SSLError):  # such as the answer that is no close_notify but data
            self.attempt(self.tls.unwrap)

    def encrypted(self, data: bytes) -> bytes:
        """The records that carry `data`, not sent."""
        self.push()
        assert not self.unsent
        assert self.tls.write(data) == len(data)
        return self.outgoing.read()

    def send_raw(self, data: bytes) -> None:
        """Bytes past OpenSSL; they must fit into the socket's buffer."""
        self.push()
        assert not self.unsent
        assert self.socket.send(data) == len(data)


@dataclasses.dataclass
class Secured:
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
        """Run until `happened()`, with the peer taking part unless it is not to read."""

        def look() -> object:
            if peer_reads:
                self.peer.read()
            else:
                self.peer.push()
            return happened()

        run_until_or_error(self.loop, look)

    def send(self, data: bytes) -> None:
        """Have the peer send all of `data`, which must fit into the kernel's buffers, and have it arrive."""
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
        """Run until the peer has that many bytes more, or all there are; what it has got since the last time."""
        self.run_until(lambda: len(self.peer.received) >= count or self.peer.saw_close_notify or self.peer.saw_end)
        received = bytes(self.peer.received)
        self.peer.received.clear()
        return received

    def fill(self) -> int:
        """Write until the protocol is told to pause, and stays so; how much was written. The peer does not read."""
        written = 0
        while not self.writing_paused:
            assert written < MORE_THAN_ANYBODY_TAKES, "pause_writing() does not come"
            self.transport.write(b"f" * PIECE)
            written += PIECE
            run_once(self.loop, 5 if self.writing_paused else 1)  # the kernel may take more after all
        return written

    @property
    def writing_paused(self) -> bool:
        return self.protocol.calls.count("pause_writing") > self.protocol.calls.count("resume_writing")

    def end(self) -> None:
        """Have the peer half-close the plain connection, and that arrive."""
        self.peer.pump()
        self.peer.socket.shutdown(socket.SHUT_WR)
        wait_for(self.socket, select.POLLIN)

    def reset(self) -> None:
        """Have the peer reset the connection, and the reset arrive. For kind "tcp"."""
        assert self.peer.socket.family == socket.AF_INET
        reset(self.peer.socket)
        wait_for(self.socket, 0)

    def run_until_lost(self, peer_reads: bool = True) -> None:
        """With a peer that answers close_notify if it reads at all."""

        def lost() -> bool:
            if peer_reads and self.peer.saw_close_notify:
                self.peer.notify_close()
            return self.protocol.lost

        self.run_until(lost, peer_reads)


class SecuredConnections:
    """Makes TLS connections on a loop and takes them down. What its exception handler is told is kept for the test, and
    a report that no test took is a failure."""

    def __init__(self, loop: asyncio.SelectorEventLoop, certificates: Certificates) -> None:
        self.loop = loop
        self.certificates = certificates
        self.reports: list[dict[str, Any]] = []
        self.opened: list[Secured] = []
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
        """The task that makes our end, its peer, and the protocol; nobody has sent anything yet. `side` is ours."""
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

    def open(self, side: str = "server", protocol: Any = None, **options: Any) -> Secured:
        """A connection whose handshake is complete on both ends and whose protocol has been told of it."""
        making, peer, protocol = self.begin(side, protocol, **options)

        def made() -> bool:
            through = peer.shake() or peer.saw_end
            return making.done() and (through or making.exception() is not None)

        try:
            run_until_or_error(self.loop, made)
            transport, _ = making.result()
        except BaseException:
            making.cancel()
            peer.socket.close()
            peer.opposite.close()  # a call that is refused leaves it to its caller
            raise
        return self.adopt(transport, protocol, peer)

    def adopt(self, transport: asyncio.Transport, protocol: Any, peer: Peer) -> Secured:
        secured = Secured(self.loop, transport, protocol, peer, transport.get_extra_info("socket"))
        self.opened.append(secured)
        return secured

    def failure(self, making: asyncio.Task[Any], peer: Peer, until: Callable[[], object] | None = None) -> Exception:
        """What a handshake fails with, the peer doing its part as far as it can."""

        def failed() -> bool:
            with contextlib.suppress(ssl.SSLError):
                peer.shake()
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
        for secured in self.opened:
            if not secured.is_gone:
                secured.transport.abort()
            secured.peer.socket.close()
        for secured in self.opened:
            run_until(self.loop, lambda secured=secured: secured.is_gone)
            run_once(self.loop, 3)
            if hasattr(secured.protocol, "check_life_cycle"):
                secured.protocol.check_life_cycle()
        assert not self.reports, f"the exception handler was called: {self.reports}"


@contextlib.contextmanager
def secured_on(loop: asyncio.SelectorEventLoop, certificates: Certificates) -> Iterator[SecuredConnections]:
    connections = SecuredConnections(loop, certificates)
    try:
        yield connections
    finally:
        connections.close()


def numbered(size):
    """Bytes among which each position can be told from those nearby."""
    return b"".join(b"%07d;" % number for number in range(size // 8 + 1))[:size]


class Plain:
    """A plain connection of the loop, which can be upgraded, and a peer that can be too."""

    def __init__(self, tls, side, protocol=None, kind="tcp", version=None):
        self.tls, self.side, self.version = tls, side, version
        self.loop = tls.loop
        self.protocol = Recorder() if protocol is None else protocol
        ours, self.socket = connected_sockets(kind)
        self.transport, _ = self.loop.run_until_complete(self.loop.create_connection(lambda: self.protocol, sock=ours))

    def begin(self, **options):
        """The task that upgrades our end, and the peer, which has sent nothing."""
        certificates = self.tls.certificates
        options.setdefault("server_side", self.side == "server")
        if self.side == "client":
            options.setdefault("server_hostname", HOST)
        context = certificates.context(self.side, self.version)
        upgrading = self.loop.start_tls(self.transport, self.protocol, context, **options)
        peer = Peer(self.socket, certificates.context(other(self.side), self.version), other(self.side))
        return self.loop.create_task(upgrading), peer

    def upgrade(self, **options):
        upgrading, peer = self.begin(**options)
        run_until(self.loop, lambda: peer.shake() and upgrading.done())
        return self.tls.adopt(upgrading.result(), self.protocol, peer)

    def run_until_lost(self):
        """For one that never became TLS."""
        run_until(self.loop, lambda: self.protocol.lost)
        self.socket.close()
