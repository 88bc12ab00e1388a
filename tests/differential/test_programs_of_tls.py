"""Random programs on a TLS connection whose records arrive in pieces, cut anywhere, including those of the handshake.

test_tls_orderings.py sends whole records and lets things settle between two steps. Here the peer encrypts into a store
of its own, and a step of the program sends some bytes of it: so a record, an alert or a close_notify is complete in the
turn in which its last byte comes, and the protocol must get its data in that turn, as on asyncio. That file also lists
what scripts leave out because asyncio leaves it to chance or gets it wrong.
"""

import contextlib
import socket
import ssl

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, close_again, counted, step, traced
from stage_protocols import Buffered, Streaming
from support.certificates import HOST, VERSIONS, issued
from support.interpreter import uses_hypothesis
from support.tls_connections import SIDES, Peer, other

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="data sent over TCP is not at the other end at once"),
]

ALL = 1 << 30  # bytes
MOST_WRITTEN = 300_000  # bytes; stays below the limit at which writing is paused
BROKEN = (BrokenPipeError, ConnectionResetError)
EXPECTED_LOG = {"SSL connection is closed", "socket.send() raised exception."}

# The header of a record has 5 bytes.
pieces = st.one_of(st.integers(1, 40), st.sampled_from([100, 700, 5000, ALL]))
own = st.one_of(
    step("write", st.integers(0, 20_000)),
    step("writelines", st.lists(st.integers(0, 300), max_size=4).map(tuple)),
    step("pause_reading"),
    step("resume_reading"),
    step("look"),
)
ends = st.one_of(step("close"), step("abort"))
encrypting = st.one_of(step("peer_encrypts", st.integers(1, 300)), step("peer_encrypts", st.integers(1, 40_000)))
sending = st.lists(step("peer_sends", pieces), min_size=1, max_size=5)
peers = st.one_of(
    st.tuples(encrypting, sending).map(lambda both: [both[0], *both[1]]),
    sending,
    st.tuples(step("peer_reads")).map(list),
)
leaving = st.one_of(
    st.tuples(step("peer_notifies"), sending).map(lambda both: [both[0], *both[1]]),
    st.tuples(st.sampled_from(["peer_ends", "peer_closes"]).flatmap(step)).map(list),
)
# The peer's steps have their own turns: data written in a turn may leave at its end.
in_turns = st.one_of(peers, peers, peers, leaving).map(lambda steps: [(one,) for one in steps])
parts = st.one_of(
    in_turns,
    in_turns,
    st.lists(st.one_of(own, own, own, ends), min_size=1, max_size=4).map(lambda steps: [tuple(steps)]),
    step("wait", st.integers(1, 4)).map(lambda one: [one]),
)
programs = st.lists(parts, max_size=8).map(lambda lists: [part for parts in lists for part in parts])
reactions = st.dictionaries(
    st.sampled_from(["data", "data", "eof_received"]), st.lists(st.one_of(own, own, ends), max_size=2).map(tuple)
)


class SlowPeer(Peer):
    """Sends only as many encrypted bytes as it is allowed to."""

    allowed = 0

    def push(self):
        self.unsent += self.outgoing.read()
        with contextlib.suppress(OSError):
            while self.unsent and self.allowed:
                sent = self.socket.send(self.unsent[: self.allowed])
                del self.unsent[:sent]
                self.allowed -= sent

    def send(self, count):
        self.allowed = count
        self.push()
        self.allowed = 0


class TlsStage(Stage):
    keep_open = False

    def __init__(self, loop, program, reactions, *, side, version, cuts, buffered):
        super().__init__(loop, program, reactions)
        self.cuts = list(cuts)
        self.transport = None
        self.lost = self.peer_left = self.is_open = self.closed = self.receiving = False
        self.written = self.encrypted = self.delivered = 0
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        certificates = issued()
        context = certificates.context(side, version)
        self.peer = SlowPeer(theirs, certificates.context(other(side), version), other(side))
        make = (Buffered if buffered else Streaming)(self)
        if side == "client":
            making = loop.create_connection(lambda: make, sock=ours, ssl=context, server_hostname=HOST)
        else:
            making = loop.connect_accepted_socket(lambda: make, ours, ssl=context)
        self.making = loop.create_task(making)

    def report(self, loop, context):
        # So asyncio says if eof_received() aborts the connection. That is all that happens.
        if "cannot switch state" not in str(context.get("exception")):
            super().report(loop, context)

    def begun(self):
        """The program begins after the handshake, whose records come in pieces, one in each turn."""
        if not self.is_open:
            self.peer.allowed = self.cuts.pop(0) if self.cuts else ALL
            complete = self.peer.handshake()
            self.peer.send(self.peer.allowed)
            self.is_open = complete and self.making.done() and not self.peer.unsent
            self.turn = 0
            if self.is_open:
                self.making.result()
                self.peer.read()  # session tickets
        return self.is_open

    def finish(self):
        """The peer sends and reads the rest and leaves; then this end does, unless it has left already."""
        self.peer_sends(ALL)
        self.run_some()
        self.resume_reading()
        self.run_some()
        self.peer_reads()
        self.peer_closes()
        self.run_some()
        if not self.lost:
            self.transport.abort()
        while not self.lost:
            self.run_once()
        self.run_once()
        assert counted(0, self.written, 251).startswith(self.peer.received)
        self.trace += [bytes(self.peer.received), self.peer.saw_close_notify]

    def run_some(self):
        for _ in range(8):
            self.run_once()

    def new_buffer(self):
        return memoryview(bytearray(65_536))  # with a bytearray asyncio fills copies

    def reason(self, error):
        name = "broken" if isinstance(error, BROKEN) else type(error).__name__
        return name, getattr(error, "reason", None)

    def received(self, data):
        """All data of one turn is one piece; data after close() does not count, because hotloop drops it."""
        assert data == counted(self.delivered, len(data), 253)
        self.delivered += len(data)
        if not self.closed:
            self.receiving = True
            self.happened("data", len(data))
            self.receiving = False

    # -- the transport's user ------------------------------------------------------------------------------------------

    def next_bytes(self, size):
        self.written += size
        return counted(self.written - size, size, 251)

    def write(self, size):
        if self.written + size < MOST_WRITTEN:
            self.transport.write(self.next_bytes(size))

    def writelines(self, sizes):
        self.transport.writelines([self.next_bytes(size) for size in sizes])

    def pause_reading(self):
        if not self.peer_left:
            self.transport.pause_reading()

    def resume_reading(self):
        self.transport.resume_reading()

    def close(self):
        if not self.transport.is_closing():
            if self.peer_left or self.encrypted > self.delivered:
                self.transport.resume_reading()
            self.closed = True
            self.transport.close()
        elif self.closed:
            close_again(self.transport)

    def abort(self):
        # With the data that a pause has kept behind the peer's end, asyncio fails: it "cannot switch state" any more.
        if not (self.receiving and self.peer_left):
            self.transport.abort()

    def look(self):
        # hotloop's looks at the transport below, and so does asyncio's in newer versions: in 3.14, not in 3.13.0.
        below = self.transport._ssl_protocol._transport
        closing = self.transport.is_closing() or (below is not None and below.is_closing())
        self.note("state", closing, self.transport.is_reading())

    # -- the peer ------------------------------------------------------------------------------------------------------

    def peer_encrypts(self, size):
        with contextlib.suppress(ssl.SSLError):  # the peer has sent close_notify already, or got an alert
            self.peer.tls.write(counted(self.encrypted, size, 253))
            self.encrypted += size

    def peer_sends(self, count):
        self.peer.send(count)

    def peer_reads(self):
        before = len(self.peer.received)
        with contextlib.suppress(ssl.SSLError):  # an alert
            self.peer.read()
        self.note("peer read", len(self.peer.received) - before, self.peer.saw_close_notify, self.peer.saw_end)

    def peer_notifies(self):
        self.peer_left = True
        self.peer.notify_close()

    def peer_ends(self):
        self.peer_left = True
        self.peer.socket.shutdown(socket.SHUT_WR)

    def peer_closes(self):
        """Read everything first: unread data would turn the close into a reset."""
        self.peer_left = True
        self.peer_reads()
        self.peer.socket.close()


@pytest.mark.parametrize("side", SIDES)
@hypothesis.settings(max_examples=hypothesis.settings().max_examples // 3)
@hypothesis.given(
    program=programs,
    reactions=reactions,
    version=st.sampled_from(VERSIONS),
    cuts=st.lists(pieces, max_size=6),
    buffered=st.booleans(),
)
def test_any_program_of_tls_is_asyncios(
    load_implementation, impl, asyncio_log, side, program, reactions, version, cuts, buffered
):
    options = {"side": side, "version": version, "cuts": cuts, "buffered": buffered}
    actual = traced(impl, TlsStage, program, reactions, **options)
    expected = traced(load_implementation("asyncio"), TlsStage, program, reactions, **options)
    assert set(asyncio_log.take()) <= EXPECTED_LOG
    assert actual == expected
