"""Random programs on pipe transports: every callback comes in the same turn and with the same data as on asyncio.

A program reads from one pipe and writes to another. They are pipes, or Unix sockets given as files; written data is at
the other end before the system call returns. The program may close its files beside the transports.

Programs of terminals read and write through one file. The kernel passes a terminal's data on later, in a thread of its
own, and in other pieces. So there the order of events counts, and not the turn, and each step waits for the data of the
one before. A pipe's or a socket's two directions are not shared in programs: asyncio's writer takes the place of the
reader there, because it watches for the end of the other side.
"""

import asyncio
import contextlib
import os
import pty
import socket
import tty

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, Step, counted, step, traced
from stage_protocols import FlowControl
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="asyncio has pipe transports on Unix only"),
]

MUCH = 600_000  # bytes; more than the kernel keeps between the two ends

sizes = st.integers(0, 300)
limits = st.sampled_from([(0, 0), (None, None), (1000, None), (10**7, 0)])
own = st.one_of(
    step("write", st.one_of(sizes, st.sampled_from([4096, 4097, 65_536, 70_000]))),
    step("write_more", sizes),
    step("writelines", st.lists(st.integers(0, 200), max_size=3).map(tuple)),
    step("look"),
    step("pause_reading"),
    step("resume_reading"),
    step("set_limits", limits),
)
ends = st.one_of(step("write_eof"), step("close"), step("abort"), step("close_reading"), step("write_much"))
peers = st.one_of(
    step("peer_write", st.one_of(st.integers(1, 500), st.sampled_from([5000, 60_000]))),
    step("peer_read", st.sampled_from([1, 5000, 1 << 20])),
    step("peer_read", st.just(1 << 20)),
    step("peer_stops_writing"),
    step("peer_stops_reading"),
)
terminal_steps = st.one_of(
    step("write", sizes),
    step("write_more", sizes),
    step("peer_writes", sizes),
    step("peer_writes", sizes),
    step("pause_reading"),
    step("resume_reading"),
    step("look"),
    step("close"),
    step("abort"),
    step("close_reading"),
    step("close_file"),
    step("peer_closes"),
)
parts = st.one_of(
    step("wait", st.integers(1, 6)),
    st.lists(st.one_of(own, own, own, ends, peers), max_size=4).map(tuple),
    st.lists(st.one_of(own, peers), min_size=1, max_size=3).map(tuple),
)
programs = st.lists(parts, max_size=10)
files = st.one_of(step("close_file", st.sampled_from(["reading", "writing"])), parts, parts)
programs_beside = st.lists(files, max_size=10)
reactions = st.dictionaries(
    st.sampled_from(["data", "eof_received", "pause_writing", "resume_writing", "connection_made", "connection_lost"]),
    st.lists(st.one_of(own, ends), max_size=2).map(tuple),
    max_size=2,
)


class Side(FlowControl, asyncio.Protocol):
    """The protocol of one of the two transports."""

    def __init__(self, stage, name):
        self.stage = stage
        self.name = name
        self.transport = None
        self.lost = False

    def connection_made(self, transport):
        self.transport = transport
        self.stage.happened("connection_made", self.name)

    def data_received(self, data):
        self.stage.happened("data", bytes(data))

    def eof_received(self):
        self.stage.happened("eof_received")

    def connection_lost(self, error):
        self.lost = True
        self.stage.happened("connection_lost", self.name, repr(error))


def open_pair(kind):
    """Two descriptors, one to read from and one to write to."""
    if kind == "pipe":
        return os.pipe()
    return [end.detach() for end in socket.socketpair()]


class PipeStage(Stage):
    def __init__(self, loop, program, reactions, *, kinds):
        super().__init__(loop, program, reactions)
        self.resuming = False
        self.paused_in = self.reader_acted_in = 0
        self.written = self.peer_written = 0
        self.at_peer = bytearray()
        self.reading, self.writing = Side(self, "reading"), Side(self, "writing")
        ours_to_read, self.peer_to_write = open_pair(kinds[0])
        self.peer_to_read, ours_to_write = open_pair(kinds[1])
        self.peers = {self.peer_to_read, self.peer_to_write}
        for fd in self.peers:
            os.set_blocking(fd, False)
        self.files = {"reading": os.fdopen(ours_to_read, "rb", 0), "writing": os.fdopen(ours_to_write, "wb", 0)}
        read_pipe = loop.connect_read_pipe(lambda: self.reading, self.files["reading"])
        write_pipe = loop.connect_write_pipe(lambda: self.writing, self.files["writing"])
        self.connecting = [loop.create_task(read_pipe), loop.create_task(write_pipe)]

    def begun(self):
        return all(task.done() for task in self.connecting)

    def finish(self):
        """The other ends read all and leave; then these ends do, unless they have left already."""
        for _ in range(30):
            self.peer_read(1 << 20, quietly=True)
            self.run_once()
        self.perform(Step("resume_reading"))
        for fd in list(self.peers):
            self.close_peer(fd)
        if not self.writing.lost:
            self.abort()
        if not self.reading.lost:
            self.close_reading()
        while not (self.writing.lost and self.reading.lost):
            self.run_once()
        self.run_once()
        assert counted(0, self.written, 251).startswith(self.at_peer)
        self.trace.append(bytes(self.at_peer))

    # -- the transports' user ------------------------------------------------------------------------------------------

    def next_bytes(self, size):
        self.written += size
        return counted(self.written - size, size, 251)

    def write(self, size):
        self.writing.transport.write(self.next_bytes(size))

    def write_more(self, size):
        write = self.writing.transport.write  # the transport may not exist yet
        data = bytearray(self.next_bytes(size))
        write(data)
        data[:] = bytes(size)

    def write_much(self):
        self.write(MUCH)

    def writelines(self, sizes):
        self.writing.transport.writelines([self.next_bytes(size) for size in sizes])

    def write_eof(self):
        if not self.ends_at_once():
            self.writing.transport.write_eof()

    def close(self):
        if not self.ends_at_once():
            self.writing.transport.close()

    def abort(self):
        # asyncio's abort() of a closing transport with nothing left to write calls connection_lost() a second time.
        transport = self.writing.transport
        if not self.ends_at_once() and (not transport.is_closing() or transport.get_write_buffer_size()):
            transport.abort()

    def ends_at_once(self):
        """Where resume_writing() closes the transport, asyncio calls connection_lost() when that returns: too early if
        it has also written, and otherwise a second time later."""
        return self.resuming

    def set_limits(self, limits):
        self.writing.transport.set_write_buffer_limits(*limits)

    def pause_reading(self):
        self.reading.transport.pause_reading()
        self.paused_in = self.turn

    def resume_reading(self):
        """Where the writing end's reader has acted since a pause in this turn, asyncio's poll reports that before what
        there is to read, because asyncio has told the kernel of the pause."""
        if self.paused_in != self.turn or self.reader_acted_in != self.turn:
            self.reading.transport.resume_reading()

    def close_reading(self):
        self.reading.transport.close()

    def close_file(self, name):
        # While bytes wait, asyncio's cleanup fails: _remove_writer() raises EBADF, and the connection is not lost.
        if not self.writing.transport.get_write_buffer_size():
            self.files[name].close()

    def look(self):
        reading, writing = self.reading.transport, self.writing.transport
        self.note("reading", reading.is_closing(), reading.is_reading())
        self.note("writing", writing.is_closing(), writing.can_write_eof(), writing.get_write_buffer_size())

    # -- the other ends ------------------------------------------------------------------------------------------------

    def peer_write(self, size):
        count = os.write(self.peer_to_write, counted(self.peer_written, size, 253))
        self.peer_written += count
        self.note("peer wrote", count)

    def peer_read(self, size, quietly=False):
        self.reader_acted_in = self.turn
        before = len(self.at_peer)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while self.peer_to_read in self.peers and (data := os.read(self.peer_to_read, size)):
                self.at_peer += data
                if size < 1 << 20:
                    break
        if not quietly:
            self.note("peer read", len(self.at_peer) - before)

    def peer_stops_writing(self):
        self.close_peer(self.peer_to_write)

    def peer_stops_reading(self):
        self.reader_acted_in = self.turn
        self.close_peer(self.peer_to_read)

    def close_peer(self, fd):
        if fd in self.peers:
            self.peers.remove(fd)
            os.close(fd)


kinds = st.sampled_from(["pipe", "socket"])


@hypothesis.given(program=programs, reactions=reactions, kinds=st.tuples(kinds, kinds))
def test_any_program_of_pipes_is_asyncios(load_implementation, impl, asyncio_log, program, reactions, kinds):
    actual = traced(impl, PipeStage, program, reactions, kinds=kinds)
    expected = traced(load_implementation("asyncio"), PipeStage, program, reactions, kinds=kinds)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected


@hypothesis.given(program=programs_beside, reactions=reactions, kinds=st.tuples(kinds, kinds))
def test_any_program_that_closes_its_files_is_asyncios(
    load_implementation, impl, asyncio_log, program, reactions, kinds
):
    program = [one if isinstance(one, tuple) or one.name == "wait" else (one,) for one in program]
    actual = traced(impl, PipeStage, program, reactions, kinds=kinds)
    expected = traced(load_implementation("asyncio"), PipeStage, program, reactions, kinds=kinds)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected


class TerminalStage(Stage):
    """Reads and writes a terminal through one file. Its peer is the terminal's other side."""

    def __init__(self, loop, program):
        super().__init__(loop, program, {})
        self.peer, ours = pty.openpty()
        tty.setraw(ours)
        os.set_blocking(self.peer, False)
        self.file = os.fdopen(ours, "r+b", 0)
        self.reading, self.writing = Side(self, "reading"), Side(self, "writing")
        self.written = self.peer_written = 0
        self.at_peer = bytearray()
        self.received = bytearray()

    def note(self, *what):
        if what[0] == "data":
            self.received += what[1]
        self.trace.append("data" if what[0] == "data" else what)
        if self.trace[-2:] == ["data", "data"]:
            del self.trace[-1]

    def play(self):
        run = self.loop.run_until_complete
        run(self.loop.connect_read_pipe(lambda: self.reading, self.file))
        run(self.loop.connect_write_pipe(lambda: self.writing, self.file))
        for one in [*self.program, Step("resume_reading"), Step("peer_closes"), Step("close"), Step("close_reading")]:
            self.perform(one)
            self.run_until(self.has_all)
            for _ in range(5):
                self.run_once()
        assert self.reading.lost and self.writing.lost
        self.file.close()
        return [*self.trace, bytes(self.received), bytes(self.at_peer)]

    def run_until(self, happened):
        while not happened():
            self.run_once()

    def has_all(self):
        """Whether both sides have got what they can get."""
        if self.peer is not None:
            with contextlib.suppress(BlockingIOError, OSError):  # EIO when the last file of the other side is closed
                self.at_peer += os.read(self.peer, 1 << 16)
            if len(self.at_peer) < self.written:
                return False
        elif not self.file.closed and self.reading.transport.is_reading():
            return self.reading.lost
        return self.has_received()

    def has_received(self):
        stopped = self.file.closed or self.reading.lost or not self.reading.transport.is_reading()
        return stopped or len(self.received) == self.peer_written

    def write(self, size):
        if not (self.file.closed or self.writing.transport.is_closing() or self.peer is None):
            self.written += size
        self.writing.transport.write(counted(0, size, 251))

    def write_more(self, size):
        self.write(size)
        self.write(size)

    def pause_reading(self):
        self.reading.transport.pause_reading()

    def resume_reading(self):
        self.reading.transport.resume_reading()

    def close_reading(self):
        self.reading.transport.close()

    def close(self):
        self.writing.transport.close()

    def abort(self):
        if not self.writing.transport.is_closing():  # asyncio would call connection_lost() a second time
            self.writing.transport.abort()

    def close_file(self):
        self.file.close()

    def look(self):
        reading, writing = self.reading.transport, self.writing.transport
        self.note("reading", reading.is_closing(), reading.is_reading())
        self.note("writing", writing.is_closing(), writing.get_write_buffer_size())

    def peer_writes(self, size):
        if self.peer is not None and not self.file.closed:
            self.peer_written += os.write(self.peer, counted(self.peer_written, size, 253))

    def peer_closes(self):
        # The kernel may drop what was not read.
        if self.peer is not None and (self.file.closed or len(self.received) == self.peer_written):
            os.close(self.peer)
            self.peer = None


@hypothesis.given(program=st.lists(terminal_steps, max_size=10))
def test_any_program_of_a_terminal_is_asyncios(load_implementation, impl, asyncio_log, program):
    actual = traced(impl, TerminalStage, program)
    expected = traced(load_implementation("asyncio"), TerminalStage, program)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected
