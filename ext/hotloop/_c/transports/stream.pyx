"""StreamTransport: TCP, Unix and all other stream sockets, without Python code between the kernel and the protocol.

This file writes; reading is its base class's, in stream_receiver.pyx.

What callbacks write in one turn of the loop is sent at its end, in one system call for each transport, or at once when
it is large. Outside a turn it is sent at once. So a handler that writes a head, a body and a tail sends one segment,
and a server answering many clients wakes none of them before it has read from all. bytes objects are kept without a
copy; data that the caller may change is copied.

Source: tcp(7), unix(7); asyncio/selector_events.py.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.state cimport METRICS_STREAM, METRICS_TCP, backoff_reset, metrics_sent
from hotloop._c.poller.descriptor_callbacks cimport detach_if_unused, remove_receiver, set_receiver
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.scheduler.ready_queue cimport queued
from hotloop._c.system.os_errors cimport caught_os_error, os_error
from hotloop._c.transports.base cimport Transport
from hotloop._c.transports.protocol_kind cimport COMPILED, ByteProtocol
from hotloop._c.transports.server_connections cimport attach_to_server, detach_from_server
from hotloop._c.transports.stream_receiver cimport StreamReceiver
from hotloop._c.transports.write_queue cimport (
    FLUSH_AT,
    as_plain_data,
    bytes_or_views,
    iovec,
    is_plain_bytes,
    write_queue_clear,
    write_queue_append_data,
    write_queue_truncate,
    write_queue_send,
)

import sys
from asyncio import constants, selector_events

from hotloop._asyncio import writelines

cdef extern from "system/socket_calls.h":
    int socket_close(int fd)
    int socket_finish_writing(int fd)
    bint socket_can_send(int fd) noexcept
    int socket_unacknowledged(int fd) noexcept
    Py_ssize_t socket_send(int fd, const void *data, size_t size)
    Py_ssize_t socket_send_chunks(int fd, iovec *chunks, int count)

# In bytes. More than this is sent when the program asks about the connection: it keeps the peer busy for a while.
cdef size_t MAX_WAITING = 16 * 1024
# Mutable data of this many bytes or more is sent first, and only what the kernel does not take is copied.
cdef Py_ssize_t SEND_BEFORE_COPYING = 16 * 1024
# Before 3.12 asyncio's writelines() joined its argument and called write(), so errors were those of joining.
cdef bint joins_lines = sys.version_info < (3, 12)
cdef bint skips_falsy_lines = writelines.SKIPS_FALSY_ITEMS
# The words for the accepted types in asyncio's TypeError; they changed in 3.14 and a late 3.13.
cdef str WRITE_TYPES = (
    "a bytes, bytearray, or memoryview object"
    if any("memoryview" in str(const) for const in selector_events._SelectorSocketTransport.write.__code__.co_consts)
    else "a bytes-like object"
)


cdef inline int leave_to_parent_if_forked(StreamTransport self) except -1:
    """Before a write that is not lost."""
    return self.leave_to_parent() if self.unflushed and self.loop.is_inherited_by_fork() else 0


@cython.final
cdef class StreamTransport(StreamReceiver):
    """A connected stream socket's transport, as create_connection() and servers make it."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE

    def __dealloc__(self):
        write_queue_clear(&self.unsent)

    cdef int release_resources(self) except -1:
        cdef object server = self.server
        self.server = None
        try:
            if self.fd >= 0 and self.is_lent():
                self.wake_sendfile()
            StreamReceiver.release_resources(self)
        finally:
            self.lent = self.unflushed = False
            if server is not None:
                detach_from_server(server, self)
        return 0

    cdef int connection_lost(self, object error) except -1:
        cdef object waiter = self.empty_waiter
        if self.unflushed or not self.lost:
            # The program has called _call_connection_lost() itself (then TLS may have what was written), or this is a
            # forked child, which must not send. From here on there is no loop.
            self.flush_early()
            self.unflushed = False
        try:
            Transport.connection_lost(self, error)
        finally:
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError("Connection is closed by peer"))
        return 0

    # -- writing -------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return self.unsent.bytes

    cdef int discard_unsent(self) except -1:
        write_queue_clear(&self.unsent)
        self.blocked = False
        return 0

    cdef int check_writable(self, str method) except -1:
        if self.eof_written:
            raise RuntimeError(f"Cannot call {method}() after write_eof()")
        if self.sends_file():
            raise RuntimeError(f"unable to {method}; sendfile is in progress")
        return 0

    def write(self, data):
        """Send bytes, a bytearray or a memoryview, which may be changed afterwards. Never blocks.

        TypeError for anything else, RuntimeError after write_eof(). See asyncio.WriteTransport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be {WRITE_TYPES}, not {type(data).__name__!r}")
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write, (bytes(data),))
        if self.eof_written or self.sends_file():
            self.check_writable("write")
        if not data:
            return
        if self.lost:
            self.count_lost_write()
            return
        if type(data) is not bytes:
            # Given back after send_soon(): what a method of the data's does then comes after the data, as in asyncio.
            data = self.ask_for_memory(data)
            if data is None:
                return
        leave_to_parent_if_forked(self)
        if self.enqueue(data):
            self.send_soon()

    def writelines(self, list_of_data):
        """Like write() for each item, but in one system call."""
        cdef int waiting
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write, (b"".join(list_of_data),))
        if joins_lines:
            self.write(b"".join(list_of_data))
            return
        self.check_writable("writelines")
        if not list_of_data:
            return
        chunks = list_of_data
        # As in asyncio, the items are not looked at once the connection is lost.
        if not self.lost and not is_plain_bytes(chunks):
            chunks = bytes_or_views([data for data in chunks if data] if skips_falsy_lines else chunks)
        if self.lost:
            self.count_lost_write()
            return
        leave_to_parent_if_forked(self)
        waiting = self.unsent.count
        try:
            for data in chunks:
                if data and not self.enqueue(data):
                    return
        except BaseException:
            write_queue_truncate(&self.unsent, waiting)
            raise
        if self.blocked and not self.loop.is_inherited_by_fork():
            # As in asyncio, the kernel is asked whether it has room again, and the protocol paused last. In a forked
            # child it is not: what waits is the parent's, which sends it, too.
            self.ready_to_write()
            self.maybe_pause_protocol()
        else:
            self.send_soon()

    cdef object ask_for_memory(self, object data):
        """as_plain_data(). An exception counts as one of the send() that asyncio would have called: None. None, too, if
        asking has dropped what waited: nothing may follow the gap."""
        cdef bint waits = self.blocked
        try:
            data = as_plain_data(data)
        except (SystemExit, KeyboardInterrupt, MemoryError, BlockingIOError, InterruptedError):
            # After the last two asyncio would ask again, when the kernel has room.
            raise
        except BaseException as error:
            self.flush_early()
            self.write_failed(error)
            data = None
        return None if waits and self.lost else data

    cdef bint enqueue(self, object data) except -1:
        """Queue plain data to be sent. False if that has closed the connection: a send has failed, or the data is a
        view with gaps, which the kernel does not take."""
        cdef Py_ssize_t sent = 0
        if type(data) is bytes:
            write_queue_append_data(&self.unsent, data)
            return True
        try:
            if self.unsent.bytes == 0:
                if self.send_uncopied(data, &sent):
                    return True
                if self.lost:
                    return False
            write_queue_append_data(&self.unsent, memoryview(data).cast("B")[sent:] if sent else data)
        except BufferError as error:
            self.write_failed(error)
        else:
            return True
        return False

    cdef bint send_uncopied(self, object data, Py_ssize_t *sent) except -1:
        """Send large data without copying it; true if the kernel has taken all of it.

        Small data, too, if asking for its memory has closed the connection: asyncio would be sending it."""
        cdef Py_buffer view
        cdef Py_ssize_t count
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len < SEND_BEFORE_COPYING and not self.lost or self.loop is None:
                return False
            count = socket_send(self.usable_fd(), view.buf, view.len)
            if count > 0:
                sent[0] = count
                metrics_sent(&self.loop.metrics, count)
        finally:
            PyBuffer_Release(&view)
        if count < 0 and count != -EAGAIN:
            self.write_failed(caught_os_error(count))
        return count == view.len

    cdef int send_soon(self) except -1:
        """Send what is queued at the end of the turn, or at once if waiting gains nothing."""
        if self.lost:
            # write() has checked this, but ask_for_memory() may have called the program since.
            return 0
        if self.blocked:
            return self.maybe_pause_protocol()
        # Above the high-water mark write() has to pause the protocol before it returns, unless the kernel takes the
        # data.
        if (
            not self.loop.batch_running
            or self.is_used_by_program()
            or self.unsent.bytes > <size_t>min(<Py_ssize_t>FLUSH_AT - 1, self.high_water)
        ):
            return self.send_now()
        if self.unflushed:
            return 0
        if self.loop.is_inherited_by_fork():
            # A forked child may end at any time. That its turn ends is not even likely.
            return self.send_now()
        try:
            self.loop.unflushed.add(self)
            self.unflushed = True
        except MemoryError:
            # No `return` here: Cython would build the exception's traceback, for which there may be no memory either.
            pass
        return 0 if self.unflushed else self.send_now()

    cdef int flush(self) except -1:
        self.unflushed = False
        if self.unsent.bytes and not self.blocked and not self.lost:
            self.send_now()
        return 0

    cdef int send_early(self) noexcept:
        cdef Py_ssize_t sent
        cdef int full = False
        if self.blocked or self.lost or self.loop.is_inherited_by_fork():
            return 0
        while self.unsent.bytes and not full:
            sent = write_queue_send(&self.unsent, self.usable_fd(), socket_send_chunks, &full)
            if sent <= 0:
                # flush() gets the same error, and reports it.
                break
            metrics_sent(&self.loop.metrics, sent)
        return 0

    cdef int leave_to_parent(self) except -1:
        """In a forked child: drop what was written in the turn of the fork. What the kernel had refused before stays,
        as in the copy that asyncio's child has."""
        self.unflushed = False
        if not self.blocked:
            write_queue_clear(&self.unsent)
        return 0

    cdef int send_now(self) except -1:
        """Send what the kernel takes. The rest waits for POLLER_WRITE."""
        self.send_queued()
        return 0 if self.lost else self.maybe_pause_protocol()

    cdef int send_queued(self) except -1:
        """send_now() without pausing the protocol, for a caller that is about to write more and then calls
        send_now()."""
        cdef Py_ssize_t sent
        cdef int full = False
        while self.unsent.bytes and not full:
            sent = write_queue_send(&self.unsent, self.usable_fd(), socket_send_chunks, &full)
            if sent < 0 and not full:
                self.write_failed(caught_os_error(sent))
                return 0
            if sent > 0:
                metrics_sent(&self.loop.metrics, sent)
        if full and not self.blocked:
            try:
                self.wait_until_writable()
            except (OSError, MemoryError) as error:
                self.write_failed(error)
        elif not full and self.blocked:
            self.blocked = False
            if not self.edge_triggered or not self.reading:
                self.update_interest()
        return 0

    cdef int write_failed(self, object error) except -1:
        # asyncio would have tried each write at once, and counted all after the first as writes to a lost connection.
        # TLS records do not count, because no caller wrote them one by one.
        cdef int lost_writes = 0 if self.blocked or self.kind == COMPILED else self.unsent.count - 1
        self.unflushed = False
        self.write_failing = True
        try:
            self.fatal_error(error, "Fatal write error on socket transport")
        finally:
            self.write_failing = False
        for _ in range(lost_writes):
            self.count_lost_write()
        if self.empty_waiter is not None and not self.empty_waiter.done():
            self.empty_waiter.set_exception(error)
        return 0

    cdef int ready_to_write(self) except -1:
        cdef size_t before = self.unsent.bytes
        if self.lost or not self.blocked:
            return 0
        self.send_queued()
        if self.lost or before and self.unsent.bytes == before:
            # Or writelines() has asked, and the kernel has no room: as in asyncio, that resumes nothing.
            return 0
        self.maybe_resume_protocol()
        # The protocol may have written in resume_writing(); asyncio would have sent that by now.
        self.flush_early()
        return 0 if self.lost or self.unsent.bytes else self.sent_all()

    cdef int sent_all(self) except -1:
        """The kernel has taken everything: do what was waiting for that."""
        cdef int error
        if self.empty_waiter is not None and not self.empty_waiter.done():
            self.empty_waiter.set_result(None)
        if self.closing:
            self.lost += 1
            self.connection_lost(None)
        elif self.eof_written:
            error = socket_finish_writing(self.usable_fd())
            if error < 0:
                raise os_error(error)
        return 0

    def can_write_eof(self):
        """True: a stream can be half-closed."""
        return True

    def write_eof(self):
        """Tell the peer, after what is buffered, that nothing more will come. Idempotent."""
        cdef int error
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write_eof, ())
        if self.closing or self.eof_written:
            return
        self.flush_early()
        if self.closing:
            # asyncio would have found the connection broken, or called pause_writing(), in the write() before.
            return
        self.eof_written = True
        if not self.unsent.bytes and not self.lost:
            error = socket_finish_writing(self.usable_fd())
            if error < 0:
                raise os_error(error)
            # The other end may belong to this loop, too.
            backoff_reset(&self.loop.metrics.backoff)

    def is_closing(self):
        """True after close() or abort(), or when the connection is broken."""
        self.flush_if_broken()
        return self.closing

    def is_reading(self):
        """True unless paused or closing."""
        self.flush_if_broken()
        return Transport.is_reading(self)

    def get_write_buffer_size(self):
        """How many bytes the kernel has not taken."""
        self.flush_early()
        return self.unsent.bytes

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the watermarks, in bytes: above `high` the protocol is paused, at `low` it is resumed.

        ValueError unless high >= low >= 0. See asyncio.WriteTransport."""
        self.flush_early()
        Transport.set_write_buffer_limits(self, high, low)

    def close(self):
        """Write what is buffered, then close; the protocol gets no more data. Idempotent."""
        self.flush_early()
        Transport.close(self)

    cdef int flush_early(self) except -1:
        cdef ByteProtocol protocol
        # The transport stays on the loop's list; flush() will find nothing to do. A forked child must not send what the
        # parent will send, and only the loop's thread may send at all.
        if self.write_failing or runs_in_other_thread(self.loop):
            return 0
        if self.kind == COMPILED and self.protocol is not None:
            # Kept: see receive_compiled().
            protocol = <ByteProtocol>self.protocol
            protocol.flush_early()
        if self.unflushed and self.loop.poller is not None:
            if self.loop.is_inherited_by_fork():
                self.leave_to_parent()
            elif not self.loop.runs_elsewhere():
                self.flush()
        return 0

    cdef int flush_if_broken(self) except -1:
        """flush_early(), for an answer that depends on whether the connection is broken, unless the data may wait."""
        return self.flush_early() if self.unflushed and not self.may_wait(self.unsent.bytes) else 0

    cdef bint may_wait(self, size_t size) noexcept:
        """Whether `size` unsent bytes may wait for the end of the turn although the program asks about the connection:
        sending them now would not show that it is broken. The kernel is asked, which costs less than waking the peer
        for each message."""
        if size > MAX_WAITING or not self.edge_triggered or self.lost:
            return False
        # If nothing else runs before the end of the turn, it comes as soon as an early flush would.
        if self.loop.unflushed.count == 1 and queued(self.loop.ready) == 0:
            return False
        return socket_can_send(self.usable_fd())

    # -- sendfile() ----------------------------------------------------------------------------------------------------

    def _make_empty_waiter(self):
        if self.empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        self.flush_early()
        self.empty_waiter = self.loop.create_future()
        if not self.unsent.bytes:
            self.empty_waiter.set_result(None)
        return self.empty_waiter

    def _reset_empty_waiter(self):
        self.empty_waiter = None

    def _detach_for_sendfile(self):
        """Let loop.sendfile() register the descriptor. The program may resume reading meanwhile, and may have done so
        while written data waited for the socket."""
        # Before stop_watching(): expose() would register a transport that is not watched.
        self.socket_object()
        self.expose()
        self.stop_watching()
        self.lent = True
        if self.reading and self.is_lent():
            self.begin_reading()

    def _detach_after_sendfile(self):
        """After _detach_for_sendfile(): the descriptor is the transport's again."""
        if self.loop is None or self.loop.poller is None:
            self.lent = False
            return
        self.stop_watching()
        self.lent = False
        if not self.attached and self.usable_fd() >= 0:
            self.reserve(self.loop)
            if self.reading:
                self.begin_reading()

    cdef int wake_sendfile(self) except -1:
        """The connection has ended: have sendfile(), which waits for the socket, look at it again."""
        cdef object entry = self.loop.poller.entry(self.fd)
        if isinstance(entry, Watcher):
            (<Watcher>entry).on_events(POLLER_WRITE)
        return 0

    cdef bint is_lent(self) noexcept:
        """Whether reading is registered beside sendfile(). In a closed loop nothing is registered any more."""
        return self.lent and self.loop is not None and self.loop.poller is not None

    cdef bint is_sending(self) noexcept:
        """Whether something that was written would be lost if the connection ended now. What a Unix socket has taken
        stays for the peer."""
        return self.unsent.bytes > 0 or (self.edge_triggered and socket_unacknowledged(self.usable_fd()) > 0)

    cdef int begin_reading(self) except -1:
        if not self.is_lent():
            return StreamReceiver.begin_reading(self)
        # Beside sendfile(), which goes on waiting until the socket is writable.
        self.check_socket()
        self.reading = True
        set_receiver(self.loop.poller, self.fd, POLLER_READ, self)
        return 0

    cdef int end_reading(self) except -1:
        if not self.is_lent():
            return StreamReceiver.end_reading(self)
        self.reading = False
        remove_receiver(self.loop.poller, self.fd, POLLER_READ, self)
        return 0

    cdef int stop_watching(self) except -1:
        if not self.is_lent():
            return StreamReceiver.stop_watching(self)
        remove_receiver(self.loop.poller, self.fd, POLLER_READ, self)
        detach_if_unused(self.loop.poller, self.fd)
        return 0

    # -- the private names by which asyncio's own code and libraries read the state ------------------------------------

    @property
    def _eof(self):
        return self.eof_written

    @property
    def _server(self):
        return self.server


cdef StreamTransport open_stream(
    LoopCore loop, object sock, bint exposed, object protocol, object context, object waiter, object extra,
    object server
):
    """A transport for a connected, non-blocking socket object, `exposed` if the program has it, too."""
    cdef StreamTransport transport = StreamTransport.__new__(StreamTransport)
    cdef bint tcp
    transport.adopt_socket(sock, extra, exposed)
    # What the object says of a socket that create_connection() has made is true of the kernel's socket, too.
    tcp = transport.set_no_delay() and not exposed and server is None
    transport.edge_triggered = tcp or transport.is_tcp()
    return opened(transport, loop, exposed, protocol, context, waiter, server)


cdef StreamTransport open_accepted(
    LoopCore loop, int fd, bytes peer, bint tcp, object protocol, object context, object server
):
    """A transport for a connection that was accepted from `peer`, and whose descriptor it owns from here on. `tcp`: the
    caller knows that it is a TCP socket."""
    cdef StreamTransport transport
    try:
        transport = StreamTransport.__new__(StreamTransport)
    except MemoryError:
        socket_close(fd)
        raise
    transport.fd = fd
    transport.peer = peer
    transport.edge_triggered = tcp or transport.is_tcp()
    return opened(transport, loop, False, protocol, context, None, server)


cdef StreamTransport opened(
    StreamTransport transport, LoopCore loop, bint exposed, object protocol, object context, object waiter,
    object server
):
    """Connect a new transport, which has its descriptor, to the others. If that fails, the descriptor is closed."""
    try:
        transport.replace_protocol(protocol)
        if server is not None:
            attach_to_server(server, transport)
            transport.server = server
        if exposed:
            transport.reserve(loop)
        transport.open(loop, protocol, context, waiter)
        transport.count_as(METRICS_TCP if transport.edge_triggered else METRICS_STREAM)
    except BaseException:
        transport.release_resources()
        raise
    return transport
