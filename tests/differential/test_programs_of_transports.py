"""Random programs on one connection: every callback comes in the same turn and with the same data as on asyncio.

The connection is a pair of Unix sockets: there data is at the other end before the system call returns, even on a
loaded machine. A program's steps come from the transport's user, from the protocol's callbacks, from the other end, and
from a program that uses the socket beside its transport: it shuts it down, sends on it, closes it, or opens another
file that gets its number.
"""

import contextlib
import socket
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, Step, counted, step, traced
from stage_protocols import Buffered, Streaming
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="socketpair() is a TCP connection without Unix sockets"),
]

MUCH = 600_000  # bytes; more than the kernel keeps between the two ends

sizes = st.integers(0, 300)
limits = st.sampled_from([(0, 0), (None, None), (1000, None), (10**7, 0)])
own = st.one_of(
    step("write", sizes),
    step("write_more", sizes),
    step("writelines", st.lists(st.integers(1, 200), max_size=3).map(tuple)),
    step("look"),
    step("pause_reading"),
    step("resume_reading"),
    step("set_limits", limits),
)
ends = st.one_of(step("write_eof"), step("close"), step("abort"), step("write_much"))
beside = st.one_of(
    step("ask_for_socket"),
    step("shut_down", st.sampled_from([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR])),
    step("send_beside", st.integers(1, 50)),
    step("close_socket"),
    step("open_another_file"),
)
peers = st.one_of(
    step("peer_send", st.integers(1, 500)),
    step("peer_read"),
    step("peer_read"),
    step("peer_shut_down"),
    step("peer_close"),
)
turns = st.one_of(
    step("wait", st.integers(1, 6)), st.lists(st.one_of(own, own, own, ends, beside, peers), max_size=4).map(tuple)
)
programs = st.lists(st.one_of(turns, st.lists(st.one_of(own, peers), min_size=1, max_size=3).map(tuple)), max_size=10)
reactions = st.dictionaries(
    st.sampled_from(["data", "eof_received", "pause_writing", "resume_writing", "connection_made"]),
    st.lists(st.one_of(own, ends), max_size=2).map(tuple),
    max_size=2,
)


class ConnectionStage(Stage):
    def __init__(self, loop, program, reactions, *, buffered, keep_open):
        super().__init__(loop, program, reactions)
        self.keep_open = keep_open
        self.lost = self.much = self.beside_sent = False
        self.written = self.peer_sent = 0
        self.at_peer = bytearray()
        self.strangers = []
        self.ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.ours.setblocking(False)
        self.number = self.ours.fileno()
        self.resuming = False
        make = (Buffered if buffered else Streaming)(self)
        self.connecting = loop.create_task(loop.create_connection(lambda: make, sock=self.ours))

    def begun(self):
        return self.connecting.done()

    def note(self, *what):
        # Once asyncio's transport has sent its last byte after close(), its write() fails because it has no socket.
        if not self.lost or what[1:2] != ("AttributeError",):
            super().note(*what)

    def new_buffer(self):
        return bytearray(1000)

    def received(self, data):
        self.happened("data", data)

    def reason(self, error):
        return repr(error)

    def finish(self):
        """The other end reads all and leaves; then this end does, unless it has left already."""
        for _ in range(40):
            self.peer_read(quietly=True)
            self.run_once()
        self.perform(Step("resume_reading"))
        if not self.lost:
            self.transport.abort()
        while not self.lost:
            self.run_once()
        self.peer_read(quietly=True)
        for stranger, other in self.strangers:
            try:
                self.trace.append(("stranger", other.recv(100)))
            except BlockingIOError:
                self.trace.append(("stranger", None))
            stranger.close()
            other.close()
        self.peer.close()
        self.run_once()
        assert counted(0, self.written, 251).startswith(self.at_peer) or self.beside_sent
        self.trace.append("some" if self.much else bytes(self.at_peer))

    # -- the transport's user ------------------------------------------------------------------------------------------

    def next_bytes(self, size):
        self.written += size
        return counted(self.written - size, size, 251)

    def write(self, size):
        if not self.cannot_write():
            self.transport.write(self.next_bytes(size))

    def write_more(self, size):
        if self.cannot_write():
            return
        data = bytearray(self.next_bytes(size))
        self.transport.write(data)
        if sys.version_info < (3, 12):  # later asyncio keeps the object, and sends its changes
            data[:] = bytes(size)

    def write_much(self):
        self.much = True
        if not self.cannot_write():
            self.transport.write(self.next_bytes(MUCH))

    def cannot_write(self):
        """In some versions asyncio's transport, once closed, does not wait for the socket any more."""
        return self.ends_twice() and self.transport.is_closing()

    def writelines(self, sizes):
        # In some versions asyncio's own fails after close, and pauses no protocol.
        self.write(sum(sizes))

    def write_eof(self):
        self.transport.write_eof()

    def close(self):
        if not self.ends_twice():
            self.transport.close()

    def abort(self):
        if not self.lost and not self.ends_twice():  # asyncio's abort() fails once lost, before CPython 3.14.10
            self.transport.abort()

    def ends_twice(self):
        """asyncio calls connection_lost() twice if resume_writing() closes a transport that has written all."""
        return self.resuming and not self.transport.get_write_buffer_size()

    def pause_reading(self):
        self.transport.pause_reading()

    def resume_reading(self):
        # asyncio's transport watches a file that has got the number of a closed socket; hotloop's fails.
        if self.ours.fileno() != -1 or self.transport.is_closing() or not self.strangers:
            self.transport.resume_reading()

    def set_limits(self, limits):
        self.transport.set_write_buffer_limits(*limits)

    def look(self):
        transport = self.transport
        self.note("state", transport.is_closing(), transport.is_reading(), transport.get_write_buffer_size() > 0)

    # -- the program beside it -----------------------------------------------------------------------------------------

    def ask_for_socket(self):
        self.note("socket", self.transport.get_extra_info("socket").fileno() == self.number)

    def shut_down(self, how):
        self.transport.get_extra_info("socket").shutdown(how)

    def send_beside(self, size):
        self.beside_sent = True
        self.ours.send(b"!" * size)

    def close_socket(self):
        # While bytes wait, asyncio's cleanup fails: _remove_writer() raises EBADF, and the connection is not lost.
        if not self.transport.get_write_buffer_size():
            self.ours.close()

    def open_another_file(self):
        stranger, other = socket.socketpair()
        other.setblocking(False)
        stranger.setblocking(False)
        self.strangers.append((stranger, other))
        self.note("number", stranger.fileno() == self.number)

    # -- the other end -------------------------------------------------------------------------------------------------

    def peer_send(self, size):
        self.peer_sent += self.peer.send(counted(self.peer_sent, size, 253))

    def peer_read(self, quietly=False):
        got = 0
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while self.peer.fileno() != -1 and (data := self.peer.recv(1 << 20)):
                self.at_peer += data
                got += len(data)
        if not quietly:
            self.note("peer read", got if not self.much else got > 0)

    def peer_shut_down(self):
        self.peer.shutdown(socket.SHUT_WR)

    def peer_close(self):
        self.peer.close()


@hypothesis.given(program=programs, reactions=reactions, buffered=st.booleans(), keep_open=st.booleans())
def test_any_program_of_a_connection_is_asyncios(
    load_implementation, impl, asyncio_log, program, reactions, buffered, keep_open
):
    options = {"buffered": buffered, "keep_open": keep_open}
    actual = traced(impl, ConnectionStage, program, reactions, **options)
    expected = traced(load_implementation("asyncio"), ConnectionStage, program, reactions, **options)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected
