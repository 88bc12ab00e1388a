"""Random programs that send files on a stream transport which reads and writes beside: what arrives, what the protocol
hears and how each sendfile() ends is the same as on asyncio.

Where the kernel sends the file, a part of it leaves in another turn than on asyncio. So the consequences of each part
of a program end before the next part begins, and callbacks and ends of tasks are compared separately. Files that
asyncio reads itself, as over TLS, are read without a thread, so that the turns are certain.
"""

import asyncio
import contextlib
import io
import os
import socket
import ssl
import sys
import tempfile
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, counted, step, traced
from stage_protocols import Buffered, Streaming
from support.certificates import HOST, issued
from support.inline_executor import InlineExecutor
from support.interpreter import uses_hypothesis
from support.tls_connections import Peer

from hotloop._asyncio.sendfile import SendfileFallback

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems wake a Unix socket's writers at other times"),
]

FILE_SIZE = 100_000  # bytes; more than the small buffer takes
SMALL_BUFFER = 4096  # bytes
TURNS_TO_SETTLE = 40
BROKEN = (BrokenPipeError, ConnectionResetError)

sizes = st.one_of(st.integers(0, 300), st.sampled_from([5000, 60_000]))
counts = st.one_of(st.none(), st.integers(1, 300), st.sampled_from([20_000, FILE_SIZE - 1, FILE_SIZE + 1]))
offsets = st.one_of(st.just(0), st.sampled_from([1, 50_000, FILE_SIZE - 5, FILE_SIZE, FILE_SIZE + 5]))
files = st.sampled_from(["raw", "raw", "buffered", "bytes", "pipe", "text"])
MOST_IN_A_READ = 65_536  # bytes; asyncio asks for 256 KiB at a time, hotloop for as much as came before
MOST_UNREAD = 150_000  # bytes; how much more the kernel takes depends on the sizes of the pieces that TLS makes

sending = step("send_file", st.tuples(files, offsets, counts, st.booleans()))
own = st.one_of(
    sending,
    sending,
    step("cancel", st.integers(0, 3)),
    step("write", sizes),
    step("pause_reading"),
    step("resume_reading"),
    step("set_limits", st.sampled_from([(0, 0), (None, None), (1000, None), (10**7, 0)])),
    step("set_protocol", st.booleans()),
    step("look"),
)
ends = st.sampled_from(["write_eof", "close", "abort"]).flatmap(step)
peers = st.one_of(
    step("peer_write", sizes),
    step("peer_write", sizes),
    step("peer_read", st.sampled_from([1, 5000, 1 << 20])),
    step("peer_read", st.just(1 << 20)),
    st.sampled_from(["peer_ends", "peer_closes"]).flatmap(step),
)
# The peer's steps have their own parts: data written in a turn may leave at its end.
parts = st.one_of(st.lists(st.one_of(own, own, ends), min_size=1, max_size=2).map(tuple), st.tuples(peers))
programs = st.lists(parts, max_size=10)
reactions = st.dictionaries(
    st.sampled_from(["data", "eof_received", "pause_writing", "resume_writing"]),
    st.lists(st.one_of(own, own, ends), max_size=2).map(tuple),
    max_size=2,
)


class MendedLoop(SendfileFallback, asyncio.SelectorEventLoop):
    """asyncio's, with what hotloop mends: pause_writing() and resume_writing() come in pairs, and a sendfile() that is
    cancelled while written data waits leaves a transport that can be used."""

    async def _sendfile_native(self, transp, file, offset, count):
        del self._transports[transp._sock_fd]
        reading = transp.is_reading()
        transp.pause_reading()
        waiter = transp._make_empty_waiter()
        try:
            await waiter
            return await self.sock_sendfile(transp._sock, file, offset, count, fallback=False)
        finally:
            transp._reset_empty_waiter()
            if reading:
                transp.resume_reading()
            self._transports[transp._sock_fd] = transp


class MendedAsyncio:
    new_event_loop = MendedLoop


class PlainPeer:
    """The other end of a connection without TLS, with the methods of a TLS connection's."""

    def __init__(self, sock):
        self.socket = sock
        self.received = bytearray()
        self.saw_end = self.saw_close_notify = False

    def handshake(self):
        return True

    def write(self, data):
        with contextlib.suppress(BlockingIOError):
            return self.socket.send(data)
        return 0

    def read(self, most=1 << 30):
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while most > 0 and not self.saw_end:
                data = self.socket.recv(min(most, 1 << 20))
                self.received += data
                most -= len(data)
                self.saw_end = not data


class FileStage(Stage):
    def __init__(self, loop, program, reactions, *, tls, buffered, keep_open, small):
        super().__init__(loop, program, reactions)
        self.keep_open = keep_open and not tls  # TLS cannot, and asyncio warns
        self.transport = None
        self.lost = self.closed = self.resuming = self.peer_left = False
        self.written = self.peer_sent = self.delivered = 0
        self.tasks = []
        self.outcomes = []
        loop.set_default_executor(InlineExecutor())
        self.resources = contextlib.ExitStack()
        self.content = counted(0, FILE_SIZE, 241)
        self.path = Path(self.resources.enter_context(tempfile.TemporaryDirectory()), "file")
        self.path.write_bytes(self.content)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
            if small and not tls:  # asyncio puts several writes into several records, of which some fit in
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        self.tls = tls
        self.refuses_data = False
        self.buffer_size = 65_536 if tls else 4000
        self.connect((Buffered if buffered else Streaming)(self), ours, theirs)

    def connect(self, protocol, ours, theirs):
        options = {}
        self.peer = PlainPeer(theirs)
        if self.tls:
            certificates = issued()
            self.peer = Peer(theirs, certificates.context("server"), "server")
            options = {"ssl": certificates.context("client"), "server_hostname": HOST}
        connecting = self.loop.create_task(self.loop.create_connection(lambda: protocol, sock=ours, **options))
        while not (self.peer.handshake() and connecting.done()):
            self.run_once()

    def note(self, *what):
        # asyncio's transport has no loop any more after its end, and fails.
        if not self.lost or what[1:2] != ("AttributeError",):
            super().note(*what)

    def report(self, loop, context):
        # asyncio's transport reports that nothing waits for its written data any more when it is closed.
        if not isinstance(context.get("exception"), asyncio.InvalidStateError):
            super().report(loop, context)

    def play(self):
        with self.resources:
            for part in self.program:
                self.loop.call_soon(self.perform_all, part)
                self.settle()
                self.turn += 1
            self.trace.append("finish")
            self.finish()
        return self.trace, self.outcomes, bytes(self.peer.received)

    def perform_all(self, part):
        for one in part:
            self.perform(one)

    def settle(self):
        for _ in range(TURNS_TO_SETTLE):
            self.run_once()

    def finish(self):
        self.exchange_rest()
        for task in self.tasks:
            self.outcomes.append("done" if task.done() else "pending")
            task.cancel()
        self.settle()
        with contextlib.suppress(Exception):
            self.transport.resume_reading()
        self.exchange_rest()
        self.close_peer()
        self.settle()
        if not self.lost:
            self.transport.abort()
        self.settle()
        self.note("lost", self.lost)

    def exchange_rest(self):
        """Let the peer receive all that this end sends, and this end all that it reads."""
        before = None
        while before != (before := (len(self.peer.received), self.delivered)):
            self.peer_read(1 << 20)
            self.settle()

    def new_buffer(self):
        return memoryview(bytearray(self.buffer_size))

    def reason(self, error):
        return "broken" if isinstance(error, BROKEN) else repr(error)

    def received(self, data):
        assert data == counted(self.delivered, len(data), 253)
        self.delivered += len(data)
        if not (self.closed and self.tls):  # hotloop drops it
            self.happened("data", self.delivered)

    # -- files ---------------------------------------------------------------------------------------------------------

    def open_file(self, kind):
        if kind == "bytes":
            return io.BytesIO(self.content)
        if kind == "pipe":
            reading, writing = os.pipe()
            os.write(writing, self.content[:30_000])
            os.close(writing)
            return os.fdopen(reading, "rb", 0)
        return self.path.open() if kind == "text" else self.path.open("rb", 0 if kind == "raw" else -1)

    def send_file(self, arguments):
        if self.tls and self.unread() > FILE_SIZE:
            return  # as in write()
        if self.tls and self.peer_left:
            return  # hotloop's is_closing() says sooner that the peer has left (docs/differences.md)
        # A pipe's position cannot be set afterwards. Then asyncio leaves its own protocol in the program's place, which
        # refuses data; after close() hotloop has none for it.
        self.refuses_data = self.refuses_data or (self.tls and arguments[0] == "pipe")
        self.tasks.append(self.loop.create_task(self.sends_file(len(self.tasks), *arguments)))

    async def sends_file(self, number, kind, offset, count, fallback):
        with self.open_file(kind) as file:
            try:
                result = await self.loop.sendfile(self.transport, file, offset, count, fallback=fallback)
            except asyncio.CancelledError:
                self.outcomes.append((self.turn, number, "cancelled"))  # asyncio's leaves the position where it was
                raise
            except Exception as error:
                result = self.name_of(error)
            position = file.tell() if file.seekable() else None
            self.outcomes.append((self.turn, number, result, position))

    def name_of(self, error):
        if self.lost and isinstance(error, (AttributeError, asyncio.SendfileNotAvailableError, ConnectionError)):
            return "closed"  # asyncio's transport has no socket any more if it was closed before the file was begun
        if isinstance(error, KeyError):
            return "RuntimeError"  # asyncio's second sendfile() at a time fails where it looks for the descriptor
        return type(error).__name__

    def cancel(self, index):
        if self.tasks:
            self.tasks[index % len(self.tasks)].cancel()

    def unread(self):
        """How many bytes there are, at most, that the peer has not read."""
        return self.written + FILE_SIZE * len(self.tasks) - len(self.peer.received)

    # -- the transport's user ------------------------------------------------------------------------------------------

    def next_bytes(self, size):
        self.written += size
        return counted(self.written - size, size, 251)

    def write(self, size):
        if self.tls and self.unread() + size > MOST_UNREAD:
            return
        self.transport.write(self.next_bytes(size))
        self.transport.get_write_buffer_size()  # at the end of a turn one call of the kernel's sends several writes

    def write_eof(self):
        self.transport.write_eof()

    def close(self):
        # A second close() takes from asyncio's TLS transport what its other methods need.
        if self.has_more_than_a_buffer():
            # asyncio's takes the rest for a wrong answer to close_notify.
            return
        if not self.resuming and not (self.transport.is_closing() if self.tls else self.kernel_sends()):
            if self.tls and (self.peer_left or self.peer_sent > self.delivered):
                self.transport.resume_reading()
            self.closed = True
            self.transport.close()

    def abort(self):
        if not self.lost and not self.resuming and not self.kernel_sends():
            self.closed = True
            self.transport.abort()

    def pause_reading(self):
        if not (self.tls and self.peer_left):
            self.transport.pause_reading()

    def resume_reading(self):
        if not (self.peer_left and self.kernel_sends()):
            self.transport.resume_reading()

    def set_limits(self, limits):
        if not self.tls:  # asyncio's TLS transport takes limits of 0 for exceeded by 0 bytes
            self.transport.set_write_buffer_limits(*limits)

    def set_protocol(self, buffered):
        self.transport.set_protocol((Buffered if buffered else Streaming)(self))

    def look(self):
        closing = self.transport.is_closing()
        self.note("state", closing, self.transport.is_reading(), type(self.transport.get_protocol()).__name__)

    # -- the peer ------------------------------------------------------------------------------------------------------

    def peer_write(self, size):
        if self.peer_left or self.refuses_data:
            return
        if not self.tls and self.peer_sent + size - self.delivered > MOST_IN_A_READ:
            return
        data = counted(self.peer_sent, size, 253)
        if self.tls:
            self.peer.write(data)
            self.peer_sent += size
        else:
            self.peer_sent += self.peer.write(data)

    def peer_read(self, size):
        if self.peer.socket.fileno() == -1:
            return
        if self.tls:
            with contextlib.suppress(ssl.SSLError):
                self.peer.read()
        else:
            self.peer.read(size)
        self.note("peer", len(self.peer.received), self.peer.saw_end, self.peer.saw_close_notify)

    def kernel_sends(self):
        """Maybe. If the transport is closed then, asyncio's sendfile() waits for ever (docs/differences.md)."""
        return not self.tls and not all(task.done() for task in self.tasks)

    def has_more_than_a_buffer(self):
        """At the end of a connection asyncio's TLS fills the protocol's buffer once more, and drops the rest. After
        close() hotloop drops everything."""
        return self.tls and not self.closed and self.peer_sent - self.delivered > self.buffer_size

    def peer_ends(self):
        if self.peer_left or self.has_more_than_a_buffer():
            return
        if not (self.kernel_sends() and self.transport.is_reading()):
            self.peer_left = True
            self.peer.socket.shutdown(socket.SHUT_WR)

    def peer_closes(self):
        if not self.has_more_than_a_buffer() and not (self.kernel_sends() and self.transport.is_reading()):
            self.close_peer()

    def close_peer(self):
        self.peer_left = True
        self.peer_read(1 << 30)
        self.peer.socket.close()


@pytest.mark.parametrize("tls", [False, True])
@hypothesis.given(
    program=programs, reactions=reactions, buffered=st.booleans(), keep_open=st.booleans(), small=st.booleans()
)
def test_any_program_of_sendfile_is_asyncios(impl, asyncio_log, tls, program, reactions, buffered, keep_open, small):
    options = {"tls": tls, "buffered": buffered, "keep_open": keep_open, "small": small}
    actual = traced(impl, FileStage, program, reactions, **options)
    expected = traced(MendedAsyncio, FileStage, program, reactions, **options)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected
