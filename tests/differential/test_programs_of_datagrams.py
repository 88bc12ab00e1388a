"""Random programs on a datagram endpoint: every callback comes in the same turn and with the same data as on asyncio.

The sockets are Unix sockets: they lose nothing, and a datagram is at the other end before the system call returns. The
other end is not connected, so the kernel queues some ten datagrams for it, and then sending has to wait. asyncio takes
one datagram in a turn, and hotloop several unless a callback queues something. So the other end sends no more than one
in two turns, except in programs of bursts, where the order of events counts and not the turn.
"""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, Step, counted, step, traced
from stage_protocols import FlowControl
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="UDP may lose datagrams, and delays them"),
]

# asyncio of CPython 3.13.0 adds each datagram's header to the size of its buffer and never subtracts it.
MISCOUNTS = sys.version_info[:3] == (3, 13, 0)
MANY = 15  # datagrams; more than the kernel queues for a Unix socket
TURNS_OF_A_BURST = MANY + 5  # enough for asyncio to receive it

sizes = st.integers(0, 300)
limits = st.sampled_from([(0, 0), (None, None), (1000, None), (10**7, 0)])
own = st.one_of(
    step("send", sizes),
    step("send_addressed", sizes),
    step("send_changed", sizes),
    step("send_to_another"),
    step("look"),
    step("set_limits", limits),
)
ends = st.one_of(step("close"), step("abort"), step("send_many", st.integers(1, 20)), step("send_much"))
peers = st.one_of(
    step("peer_send", sizes), step("peer_read", st.integers(1, 20)), step("peer_read", st.just(100)), step("peer_close")
)
parts = st.one_of(
    step("wait", st.integers(1, 6)),
    st.lists(st.one_of(own, own, ends, peers), max_size=4).map(tuple),
    st.lists(st.one_of(own, peers), min_size=1, max_size=3).map(tuple),
)
callbacks = st.sampled_from(["datagram", "error_received", "pause_writing", "resume_writing", "connection_made"])
reactions = st.dictionaries(callbacks, st.lists(st.one_of(own, ends), max_size=2).map(tuple), max_size=2)
bursts = st.lists(
    st.one_of(
        st.lists(st.one_of(own, ends), min_size=1, max_size=3).map(tuple),
        st.tuples(step("peer_burst", st.integers(1, MANY))),
        st.tuples(step("peer_read", st.integers(1, 20))),
    ),
    max_size=5,
)
answers = st.dictionaries(
    st.just("datagram"), st.lists(st.one_of(own, ends, step("later")), min_size=1, max_size=2).map(tuple), max_size=1
)


class Endpoint(FlowControl, asyncio.DatagramProtocol):
    def __init__(self, stage):
        self.stage = stage

    def connection_made(self, transport):
        self.stage.transport = transport
        self.stage.happened("connection_made")

    def datagram_received(self, data, address):
        self.stage.happened("datagram", bytes(data), address and os.path.basename(address))

    def error_received(self, error):
        self.stage.failed_in = self.stage.turn
        self.stage.happened("error_received", repr(error))

    def connection_lost(self, error):
        self.stage.lost = True
        self.stage.happened("connection_lost", repr(error))


class DatagramStage(Stage):
    def __init__(self, loop, program, reactions, *, connected):
        super().__init__(loop, program, reactions)
        self.connected = connected
        self.lost = False
        self.sent = self.peer_sent = 0
        self.any_sent = False
        self.resuming = False  # inside resume_writing()
        self.sent_in = 0  # the turn in which the peer last sent
        self.failed_in = -1  # the turn in which an error was last received
        self.at_peer = []
        self.folder = contextlib.ExitStack()
        folder = self.folder.enter_context(tempfile.TemporaryDirectory())
        self.ours, self.peer = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        for end, name in ((self.ours, "ours"), (self.peer, "peer")):
            end.bind(os.path.join(folder, name))
            end.setblocking(False)
        self.peer_address = self.peer.getsockname()
        self.address = self.ours.getsockname()
        if connected:
            self.ours.connect(self.peer_address)
        self.connecting = loop.create_task(loop.create_datagram_endpoint(lambda: Endpoint(self), sock=self.ours))

    def begun(self):
        return self.connecting.done()

    def finish(self):
        """The other end reads all and leaves; then this end does, unless it has left already."""
        for _ in range(40):
            self.peer_read(100, quietly=True)
            self.run_once()
        if not self.lost:
            self.transport.abort()
        while not self.lost:
            self.run_once()
        self.peer_read(100, quietly=True)
        self.peer.close()
        self.folder.close()
        self.run_once()
        self.trace.append(self.at_peer)

    # -- the transport's user ------------------------------------------------------------------------------------------

    def next_bytes(self, size):
        self.sent += size
        return counted(self.sent - size, size, 251)

    def sendto(self, data, address=None):
        # After close(), asyncio's transport no longer has a loop when it sends a datagram that waited; and a waiting
        # datagram without a necessary address ends the endpoint. Only the first one never waits: the size of asyncio's
        # buffer does not tell, because in CPython 3.13.0 it does not come down to 0.
        if not self.transport.is_closing() and (address or self.connected or not self.any_sent):
            self.any_sent = True
            self.transport.sendto(data, address)

    def send(self, size):
        self.sendto(self.next_bytes(size))

    def send_addressed(self, size):
        self.sendto(self.next_bytes(size), self.peer_address)

    def send_changed(self, size):
        data = bytearray(self.next_bytes(size))
        self.sendto(data, self.peer_address)
        data[:] = bytes(size)

    def send_to_another(self):
        self.sendto(b"stray", self.peer_address + "-not")

    def send_many(self, size):
        for _ in range(MANY):
            self.send_addressed(size)

    def send_much(self):
        self.send_addressed(1 << 24)  # too large for any buffer

    def set_limits(self, limits):
        # asyncio's transport still counts data that abort() has dropped, and pauses a protocol because of it.
        if not self.transport.is_closing() and not MISCOUNTS:
            self.transport.set_write_buffer_limits(*limits)

    def close(self):
        # Between the error of the last waiting datagram and the next turn, and inside resume_writing(), asyncio's
        # transport would end twice.
        if self.turn > self.failed_in + 1 and not self.resuming:
            self.transport.close()

    def abort(self):
        # As close(); and asyncio's fails if lost, before CPython 3.14.10.
        if not self.lost and self.turn > self.failed_in + 1 and not self.resuming:
            self.transport.abort()

    def later(self):
        self.loop.call_soon(self.note, "later")

    def look(self):
        # asyncio's transport still counts data that abort() has dropped.
        closing = self.transport.is_closing()
        self.note("state", closing, None if closing or MISCOUNTS else self.transport.get_write_buffer_size())

    # -- the other end -------------------------------------------------------------------------------------------------

    def peer_send(self, size):
        if self.turn > self.sent_in + 1:  # the datagram of the previous turn has not been read yet
            self.sent_in = self.turn
            self.peer.sendto(counted(self.peer_sent, size, 253), self.address)
            self.peer_sent += size

    def peer_burst(self, count):
        for number in range(count):
            self.peer.sendto(b"%d" % number, self.address)

    def peer_read(self, count, quietly=False):
        before = len(self.at_peer)
        with contextlib.suppress(BlockingIOError):
            while self.peer.fileno() != -1 and len(self.at_peer) < before + count:
                self.at_peer.append(self.peer.recv(1 << 16))
        if not quietly:
            self.note("peer read", len(self.at_peer) - before)

    def peer_close(self):
        self.peer.close()


def played(implementation, stage, program, reactions, connected):
    """The trace, without what asyncio's transport reports about itself: that it is called once more to send in the turn
    in which its connection has ended, where it has no loop any more."""
    fault = repr(AttributeError("'NoneType' object has no attribute '_remove_writer'"))
    trace = traced(implementation, stage, program, reactions, connected=connected)
    return [entry for entry in trace if fault not in entry]


class BurstStage(DatagramStage):
    """Lets all data of a part arrive before it takes the next, and notes no turns."""

    def __init__(self, loop, program, reactions, **options):
        waited = [one for part in program for one in (part, Step("wait", TURNS_OF_A_BURST))]
        super().__init__(loop, waited, reactions, **options)

    def note(self, *what):
        self.trace.append(what)


@hypothesis.given(program=st.lists(parts, max_size=10), reactions=reactions, connected=st.booleans())
def test_any_program_of_datagrams_is_asyncios(load_implementation, impl, asyncio_log, program, reactions, connected):
    actual = played(impl, DatagramStage, program, reactions, connected)
    expected = played(load_implementation("asyncio"), DatagramStage, program, reactions, connected)
    asyncio_log.take()  # reports of asyncio's transports about sends after the end
    assert actual == expected


@hypothesis.given(program=bursts, reactions=answers, connected=st.booleans())
def test_any_burst_of_datagrams_comes_as_on_asyncio(
    load_implementation, impl, asyncio_log, program, reactions, connected
):
    actual = played(impl, BurstStage, program, reactions, connected)
    expected = played(load_implementation("asyncio"), BurstStage, program, reactions, connected)
    asyncio_log.take()
    assert actual == expected
