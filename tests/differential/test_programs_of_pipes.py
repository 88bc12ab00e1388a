"""Random programs on pipe transports: every callback comes in the same turn and with the same data as on asyncio.

A program reads from one pipe and writes to another. They are pipes, or Unix sockets given as files; written data is at
the other end before the system call returns. Terminals are left out: the kernel passes their data on later, in a thread
of its own.
"""

import asyncio
import contextlib
import os
import socket

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, counted, step, traced
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
parts = st.one_of(
    step("wait", st.integers(1, 6)),
    st.lists(st.one_of(own, own, own, ends, peers), max_size=4).map(tuple),
    st.lists(st.one_of(own, peers), min_size=1, max_size=3).map(tuple),
)
programs = st.lists(parts, max_size=10)
reactions = st.dictionaries(
    st.sampled_from(["data", "eof_received", "pause_writing", "resume_writing", "connection_made", "connection_lost"]),
    st.lists(st.one_of(own, ends), max_size=2).map(tuple),
    max_size=2,
)


class Side(asyncio.Protocol):
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

    def pause_writing(self):
        self.stage.happened("pause_writing")

    def resume_writing(self):
        self.stage.resuming = True
        self.stage.happened("resume_writing")
        self.stage.resuming = False

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
        self.written = self.peer_written = 0
        self.at_peer = bytearray()
        self.reading, self.writing = Side(self, "reading"), Side(self, "writing")
        ours_to_read, self.peer_to_write = open_pair(kinds[0])
        self.peer_to_read, ours_to_write = open_pair(kinds[1])
        self.peers = {self.peer_to_read, self.peer_to_write}
        for fd in self.peers:
            os.set_blocking(fd, False)
        read_pipe = loop.connect_read_pipe(lambda: self.reading, os.fdopen(ours_to_read, "rb", 0))
        write_pipe = loop.connect_write_pipe(lambda: self.writing, os.fdopen(ours_to_write, "wb", 0))
        self.connecting = [loop.create_task(read_pipe), loop.create_task(write_pipe)]

    def begun(self):
        return all(task.done() for task in self.connecting)

    def finish(self):
        """The other ends read all and leave; then these ends do, unless they have left already."""
        for _ in range(30):
            self.peer_read(1 << 20, quietly=True)
            self.run_once()
        self.resume_reading()
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
        if not self.ends_twice():
            self.writing.transport.write_eof()

    def close(self):
        if not self.ends_twice():
            self.writing.transport.close()

    def abort(self):
        # asyncio's abort() of a closing transport with nothing left to write calls connection_lost() a second time.
        transport = self.writing.transport
        if not self.ends_twice() and (not transport.is_closing() or transport.get_write_buffer_size()):
            transport.abort()

    def ends_twice(self):
        """asyncio calls connection_lost() twice where resume_writing() closes a transport that has written all."""
        return self.resuming and not self.writing.transport.get_write_buffer_size()

    def set_limits(self, limits):
        self.writing.transport.set_write_buffer_limits(*limits)

    def pause_reading(self):
        self.reading.transport.pause_reading()

    def resume_reading(self):
        self.reading.transport.resume_reading()

    def close_reading(self):
        self.reading.transport.close()

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
