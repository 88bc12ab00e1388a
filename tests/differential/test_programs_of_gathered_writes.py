"""Random programs of writes that the kernel takes in pieces: every byte arrives, once and in its order.

The sending end has a small buffer, so that gathered writes (sendmsg() of many buffers) end anywhere: between two
buffers, within one, after more buffers than one system call takes. How many bytes the kernel takes at once depends on
how they are divided among system calls, which is each implementation's own business, so no trace is compared with
asyncio's. The stage itself says what must hold.
"""

import asyncio
import socket

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, Step, counted, step, traced
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="data sent over TCP is not at the other end at once"),
]

SMALL_BUFFER = 4096  # bytes; what SO_SNDBUF asks for, the kernel keeps at least its own minimum
MANY = 1100  # buffers; more than IOV_MAX, the most that one sendmsg() takes
MOST_VAIN_TURNS = 100  # turns in which nothing arrives although bytes wait

kinds = st.sampled_from([bytes, bytearray, memoryview, lambda data: memoryview(bytearray(b"<" + data + b">"))[1:-1]])
sizes = st.one_of(st.integers(0, 20), st.integers(0, 700), st.sampled_from([4095, 4096, 9000, 70_000, 300_000]))
pieces = st.tuples(kinds, sizes)
writing = st.one_of(
    step("write", pieces),
    step("writelines", st.lists(pieces, max_size=12).map(tuple)),
    step("writelines", st.tuples(st.tuples(kinds, st.integers(0, 700))).map(lambda one: one * 40)),
    step("write_many_lines", st.integers(1, 9)),
    step("set_limits", st.sampled_from([(0, 0), (None, None), (1000, 10), (10**7, 0)])),
)
reading = step("peer_read", st.one_of(st.integers(1, 3000), st.sampled_from([20_000, 1 << 20])))
ending = st.one_of(step("write_eof"), step("close"))
turn = st.one_of(
    st.lists(st.one_of(writing, writing, reading), min_size=1, max_size=4).map(tuple),
    st.tuples(reading),
    step("wait", st.integers(1, 3)),
)
programs = st.tuples(st.lists(turn, max_size=10), st.one_of(st.just([]), ending.map(lambda one: [(one,)]))).map(
    lambda parts: [*parts[0], *parts[1]]
)
reactions = st.dictionaries(
    st.sampled_from(["pause_writing", "resume_writing"]), st.lists(writing, max_size=1).map(tuple), max_size=2
)


class Protocol(asyncio.Protocol):
    def __init__(self, stage):
        self.stage = stage
        self.paused = False

    def connection_made(self, transport):
        self.stage.transport = transport

    def pause_writing(self):
        assert not self.paused
        self.paused = True
        self.stage.happened("pause_writing")

    def resume_writing(self):
        assert self.paused
        self.paused = False
        self.stage.happened("resume_writing")

    def connection_lost(self, error):
        self.stage.lost = True
        self.stage.happened("connection_lost", repr(error))


class WritingStage(Stage):
    def __init__(self, loop, program, reactions):
        super().__init__(loop, program, reactions)
        self.written = 0
        self.arrived = bytearray()
        self.lost = self.ended = False
        ours, self.peer = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        for end in (ours, self.peer):
            end.setblocking(False)
        self.protocol = Protocol(self)
        self.connecting = loop.create_task(loop.create_connection(lambda: self.protocol, sock=ours))

    def begun(self):
        return self.connecting.done()

    def perform(self, step):
        super().perform(step)
        waiting = self.transport.get_write_buffer_size()
        assert 0 <= waiting <= self.written - len(self.arrived)

    def finish(self):
        vain = 0
        while not self.lost and self.transport.get_write_buffer_size():
            before = len(self.arrived)
            self.peer_read(1 << 20)
            self.run_once()
            vain = 0 if len(self.arrived) > before else vain + 1
            assert vain < MOST_VAIN_TURNS, "the transport has stopped sending"
        if not self.lost:
            assert not self.protocol.paused
            self.transport.close()
        while not self.lost:
            self.run_once()
        self.peer_read(1 << 20)
        assert self.arrived == counted(0, self.written, 251)
        self.peer.close()
        self.run_once()

    # -- the transport's user ------------------------------------------------------------------------------------------

    def next_piece(self, piece):
        kind, size = piece
        self.written += size
        return kind(counted(self.written - size, size, 251))

    def write(self, piece):
        if not self.ended:
            self.transport.write(self.next_piece(piece))

    def writelines(self, pieces):
        if not self.ended:
            self.transport.writelines([self.next_piece(piece) for piece in pieces])

    def write_many_lines(self, size):
        self.writelines([(bytes, size)] * MANY)

    def write_eof(self):
        self.ended = True
        self.transport.write_eof()

    def close(self):
        self.ended = True
        self.transport.close()

    def set_limits(self, limits):
        self.transport.set_write_buffer_limits(*limits)

    # -- the other end -------------------------------------------------------------------------------------------------

    def peer_read(self, most):
        while most > 0:
            try:
                data = self.peer.recv(most)
            except BlockingIOError:
                return
            if not data:
                return
            self.arrived += data
            most -= len(data)


@pytest.mark.only("c", "python", reason="asyncio's writelines() queues empty chunks for ever, up to CPython 3.14.9")
@hypothesis.given(program=programs, reactions=reactions)
@hypothesis.example([(Step("writelines", ((bytes, 70_000), (bytearray, 9000), (memoryview, 300_000))),)], {})
@hypothesis.example([(Step("write_many_lines", 9), Step("write_many_lines", 9), Step("write_eof"))], {})
def test_bytes_written_in_pieces_all_arrive(impl, program, reactions):
    trace = traced(impl, WritingStage, program, reactions)
    outcome = [one[1:] for one in trace if one[1] in ("connection_lost", "reported")]
    assert outcome == [("connection_lost", "None")]
