"""Random programs that upgrade a connection by start_tls(), at any time and while anything else goes on.

The connection is one of Unix sockets, so what is sent is at the other end at once. The peer is OpenSSL in memory. It
takes as many bytes for plain text as this end wrote before the upgrade, does its part of the handshake when a step of
the program says so, and sends what it has encrypted in pieces, or leaves, or speaks no TLS at all. Everything is
compared turn by turn: the protocol's callbacks, how start_tls() ends, and what the peer gets in the end.
"""

import contextlib
import gc
import socket
import ssl
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import StageOfRuns, Step, close_again, counted, step
from stage_protocols import Buffered, Streaming
from support.certificates import HOST, VERSIONS, issued
from support.interpreter import uses_hypothesis
from support.tls_connections import SIDES, WANTS_MORE, other

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    # Where the upgrade fails, nothing closes the TLS transport that asyncio has made.
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems wake a Unix socket's writers at other times"),
]

ALL = 1 << 30  # bytes
LONG = 3600  # seconds; no program takes that long
BROKEN = (BrokenPipeError, ConnectionResetError)

pieces = st.one_of(st.integers(1, 600), st.just(ALL), st.just(ALL))
upgrades = step("upgrade", st.sampled_from(["right"] * 8 + ["wrong name", "no trust", "no context", "no time"]))
own = st.one_of(
    step("write", st.integers(0, 5000)),
    step("write", st.integers(0, 300_000)),
    step("pause_reading"),
    step("resume_reading"),
    step("resume_reading"),
    step("look"),
)
ends = st.one_of(step("cancel"), step("close"), step("abort"), step("write_eof"))
peers = st.one_of(
    step("peer_sends_plain", st.integers(1, 300)),
    step("peer_shakes_hands"),
    step("peer_shakes_hands"),
    step("peer_shakes_hands"),
    step("peer_encrypts", st.integers(1, 40_000)),
    step("peer_sends", pieces),
    step("peer_sends", pieces),
    step("peer_reads"),
    step("peer_notifies"),
)
leaving = st.one_of(step("peer_ends"), step("peer_closes"), step("peer_sends_garbage"))
# The peer's steps have their own turns: data written in a turn may leave at its end.
in_turns = st.lists(st.one_of(*[peers] * 10, leaving), min_size=1, max_size=4).map(lambda all: [(one,) for one in all])
shaking = st.lists(pieces, min_size=1, max_size=3).map(
    lambda sizes: [(one,) for size in sizes for one in (Step("peer_shakes_hands"), Step("peer_sends", size))]
)
parts = st.one_of(
    in_turns,
    shaking,
    shaking,
    st.lists(st.one_of(own, own, own, upgrades, ends), min_size=1, max_size=3).map(lambda steps: [tuple(steps)]),
    st.lists(own, min_size=1, max_size=3).map(lambda steps: [tuple(steps)]),
    step("wait", st.integers(1, 4)).map(lambda one: [one]),
)


def joined(lists):
    return [part for parts in lists for part in parts]


programs = st.tuples(
    st.lists(parts, max_size=2),
    st.tuples(own.map(lambda one: (one,)), upgrades.map(lambda one: (one,))),
    st.lists(parts, max_size=8),
).map(lambda three: [*joined(three[0]), *three[1], *joined(three[2])])
arguments = st.tuples(
    programs, st.sampled_from(SIDES), st.sampled_from(VERSIONS), st.booleans(), st.sampled_from([None, LONG])
)


class Peer:
    """OpenSSL between a socket and memory, and a count of the bytes that are no TLS."""

    def __init__(self, sock, context, side):
        self.socket = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, side == "server", HOST if side == "client" else None)
        self.plain_size = None  # bytes of plain text in all; None: TLS has not begun
        self.plain = self.received = b""
        self.unsent = bytearray()
        self.open = False
        self.failed = False
        self.ended = None  # how the connection ended

    def pump(self):
        """Take all that has come."""
        with contextlib.suppress(BlockingIOError):
            while self.ended is None:
                try:
                    data = self.socket.recv(1 << 18)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    self.ended = type(error).__name__
                    return
                if not data:
                    self.ended = "end"
                plain = len(data) if self.plain_size is None else self.plain_size - len(self.plain)
                self.plain += data[:plain]
                self.incoming.write(data[plain:])

    def do(self, operation, *arguments):
        """Let OpenSSL work; whatever it has to say, it has said once it has failed."""
        if self.failed:
            return None
        self.pump()
        try:
            return operation(*arguments)
        except WANTS_MORE:
            return None
        except (ssl.SSLError, OSError) as error:
            self.failed = type(error).__name__
            return None
        finally:
            self.unsent += self.outgoing.read()

    def shake_hands(self):
        if not self.open and self.plain_size is not None:
            self.do(self.tls.do_handshake)
            self.open = not self.failed and self.tls.version() is not None and self.finished()

    def finished(self):
        try:
            self.tls.do_handshake()
        except (ssl.SSLError, OSError):
            return False
        return True

    def read(self):
        while self.open and (data := self.do(self.tls.read, 1 << 20)):
            self.received += data
        self.pump()

    def send(self, count):
        with contextlib.suppress(OSError):
            sent = self.socket.send(self.unsent[:count])
            del self.unsent[:sent]


class UpgradingStage(StageOfRuns):
    keep_open = False

    def __init__(self, loop, program, side, version, buffered, shutdown_timeout):
        super().__init__(loop, program, {})
        self.side = side
        self.version = version
        self.shutdown_timeout = shutdown_timeout
        self.transport = None
        self.upgrading = None
        self.upgrade_failed = False
        self.upgraded = self.eof_written = self.lost = self.peer_left = self.closed = False
        self.written = self.delivered = self.plain_sent = self.encrypted = 0
        self.ours, theirs = socket.socketpair()
        for end in (self.ours, theirs):
            end.setblocking(False)
        self.peer = Peer(theirs, issued().context(other(side), version), other(side))
        self.protocol = (Buffered if buffered else Streaming)(self)
        if side == "client":
            making = loop.create_connection(lambda: self.protocol, sock=self.ours)
        else:
            making = loop.connect_accepted_socket(lambda: self.protocol, self.ours)
        loop.run_until_complete(making)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def play(self):
        self.take_parts()
        self.trace.append("finish")
        self.finish()
        return self.trace

    def finish(self):
        """Both ends send and read the rest; then they leave."""
        self.resume_reading()
        for _ in range(4):
            self.peer.shake_hands()
            self.peer.send(ALL)
            self.run_some()
            self.peer.read()
            self.run_some()
        for _ in range(5):
            self.peer.read()
            self.run_once()
        self.cancel()
        self.run_some()
        self.peer.socket.close()
        self.run_some()
        self.note("at the end", self.lost, self.transport.is_closing())
        with contextlib.suppress(AttributeError):  # asyncio's transport has forgotten its loop after the end
            self.transport.abort()
        self.run_some()
        self.ours.close()
        got = (self.peer.plain + self.peer.received)[: self.written]
        assert counted(0, self.written, 251).startswith(got)
        self.trace.append(len(got))

    def note(self, *what):
        self.trace.append((self.turn, *what))

    def report(self, loop, context):
        error = repr(context.get("exception"))
        # Before 3.14 asyncio's transport resumes the TLS protocol, which was not paused itself.
        resumes = context["message"].startswith("protocol.resume_writing()")
        # A handshake that begins on asyncio's transport after its end can neither write nor report that.
        writes_too_late = "no attribute 'call_exception_handler'" in error
        if not resumes and not writes_too_late:
            self.note("reported", context["message"][:21], error)

    def happened(self, name, *arguments):
        # Once start_tls() has failed, asyncio tells the protocol no more that it may write on (docs/differences.md).
        tells_writer = name in ("pause_writing", "resume_writing")
        if not (tells_writer and (self.upgraded or self.upgrading is not None or self.upgrade_failed)):
            self.note(name, *arguments)

    def new_buffer(self):
        return memoryview(bytearray(65_536))  # with a bytearray asyncio fills copies

    def reason(self, error):
        return "broken" if isinstance(error, BROKEN) else type(error).__name__

    def received(self, data):
        if not self.closed:
            self.note("data", len(data))
            if self.upgraded:
                assert data == counted(self.delivered, len(data), 253)
                self.delivered += len(data)

    # -- the transport's user ------------------------------------------------------------------------------------------

    def upgrade(self, how):
        # Closing asyncio's TLS transport twice, as a failed second layer does, is an error.
        if self.upgrading is None and not self.eof_written and not self.upgraded:
            self.upgrading = self.loop.create_task(self.run_upgrade(how))

    async def run_upgrade(self, how):
        options = {"server_side": True} if self.side == "server" else {"server_hostname": HOST}
        if how == "wrong name" and self.side == "client":
            options["server_hostname"] = "other.example"
        context = issued().context(self.side, self.version)
        if how == "no trust" and self.side == "client":
            context = issued().client_context(self.version, trusts=False)
        if how == "no context":
            context = True
        if how == "no time":
            options["ssl_handshake_timeout"] = 0
        if self.shutdown_timeout is not None:
            options["ssl_shutdown_timeout"] = self.shutdown_timeout
        if self.peer.plain_size is None and how not in ("no context", "no time"):
            self.peer.plain_size = self.written
        try:
            transport = await self.loop.start_tls(self.transport, self.protocol, context, **options)
        except BaseException as error:
            self.upgrade_failed = True
            self.note("start_tls raises", type(error).__name__, getattr(error, "reason", str(error)[:30]))
        else:
            self.note("start_tls returns", transport is None)
            if transport is not None:
                self.transport = transport
                self.upgraded = True
        finally:
            self.upgrading = None

    def cancel(self):
        if self.upgrading is not None:
            self.upgrading.cancel()

    def write(self, size):
        if self.upgrading is None and not self.transport.is_closing():
            self.written += size
            self.transport.write(counted(self.written - size, size, 251))

    def write_eof(self):
        if self.upgrading is None:
            self.transport.write_eof()  # fails over TLS
            self.eof_written = True

    def is_usable(self):
        """asyncio's TLS transport forgets its connection at the end, and if it is closed twice."""
        return not self.upgraded or not (self.lost or self.closed)

    def pause_reading(self):
        if self.is_usable() and not (self.upgraded and self.peer_left):
            self.transport.pause_reading()

    def resume_reading(self):
        if self.is_usable():
            self.transport.resume_reading()

    def close(self):
        if self.is_usable():
            if self.upgraded and (self.peer_left or self.encrypted > self.delivered):
                self.transport.resume_reading()  # asyncio closes nothing until then
            self.closed = True
            self.transport.close()
        elif self.closed:
            close_again(self.transport)

    def abort(self):
        if self.is_usable():
            self.transport.abort()

    def look(self):
        if self.is_usable():
            self.note("state", self.transport.is_closing(), self.transport.is_reading())

    # -- the peer ------------------------------------------------------------------------------------------------------

    def peer_sends_plain(self, size):
        if not self.peer.open and not self.peer.unsent:
            self.plain_sent += size
            with contextlib.suppress(OSError):
                self.peer.socket.send(counted(self.plain_sent - size, size, 253))

    def peer_sends_garbage(self):
        if not self.peer.open:  # asyncio drops data that comes in one read with garbage
            self.peer_left = True
            self.peer.unsent += b"this is no TLS\n" * 3

    def peer_shakes_hands(self):
        self.peer.shake_hands()

    def peer_encrypts(self, size):
        if self.peer.open:
            self.peer.do(self.peer.tls.write, counted(self.encrypted, size, 253))
            self.encrypted += size

    def peer_sends(self, count):
        self.peer.send(count)

    def peer_reads(self):
        self.peer.read()
        self.note("peer has", len(self.peer.plain), len(self.peer.received))

    def peer_notifies(self):
        if self.peer.open:
            self.peer_left = True
            self.peer.do(self.peer.tls.unwrap)

    def peer_ends(self):
        self.peer_left = True
        with contextlib.suppress(OSError):
            self.peer.socket.shutdown(socket.SHUT_WR)

    def peer_closes(self):
        self.peer_left = True
        self.peer.read()  # unread data would turn the close into a reset
        self.peer.socket.close()


def played(implementation, program, side, version, buffered, shutdown_timeout):
    loop = implementation.new_event_loop()
    try:
        return UpgradingStage(loop, program, side, version, buffered, shutdown_timeout).play()
    finally:
        loop.close()
        gc.collect(0)


@hypothesis.given(arguments=arguments)
def test_any_program_of_upgrades_is_asyncios(load_implementation, impl, asyncio_log, arguments):
    actual = played(impl, *arguments)
    expected = played(load_implementation("asyncio"), *arguments)
    asyncio_log.take()
    assert actual == expected
