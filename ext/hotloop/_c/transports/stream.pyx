"""StreamTransport: TCP, Unix and all other stream sockets, without Python code between the kernel and the protocol.

Reading. A TCP socket is registered once, edge-triggered. Pausing, resuming and waiting for room to write only change
flags of the transport and cost no system call. Because an edge is reported once, the transport remembers it until a
read has found the socket empty; a read that does not fill its buffer has found it empty. (Urgent data and the peer's
close end a read early. After these, reported as POLLER_MORE, the transport reads until there is nothing.) All other
streams are level-triggered: the kernel remembers.

Most clients have sent something by the time the server has made its transport. So an accepted connection is read from
once before it is registered, and one that is answered and closed at once is never registered.

Writing. What callbacks write in one turn of the loop is sent at its end, in one system call for each transport, or at
once when it is large. Outside a turn it is sent at once. So a handler that writes a head, a body and a tail sends one
segment, and a server answering many clients wakes none of them before it has read from all. bytes objects are kept
without a copy; data that the caller may change is copied.

Source: tcp(7), unix(7), epoll(7); asyncio/selector_events.py.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.errno cimport EAGAIN
from libc.string cimport memcpy

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.state cimport METRICS_STREAM, METRICS_TCP, backoff_reset, metrics_received, metrics_sent
from hotloop._c.poller.watcher cimport POLLER_MORE, POLLER_READ
from hotloop._c.scheduler.ready_queue cimport FREE_THREADED, queued
from hotloop._c.system.receive cimport DIRECT_READ, READ_SIZE, next_size, receive_bytes
from hotloop._c.transports.base cimport Transport, os_error
from hotloop._c.transports.protocol_kind cimport BUFFERED, COMPILED, PLAIN, ByteProtocol, kind_of
from hotloop._c.transports.server_connections cimport attach_to_server, detach_from_server
from hotloop._c.transports.socket_transport cimport SocketTransport
from hotloop._c.transports.stream_reader cimport reader_to_feed, reserve_space, return_space, wake_reader
from hotloop._c.transports.write_queue cimport (
    FLUSH_AT,
    bytes_or_views,
    iovec,
    write_queue_clear,
    write_queue_append_data,
    write_queue_truncate,
    write_queue_send,
)

import sys
from asyncio import base_events, constants, selector_events

cdef extern from "system/socket_calls.h":
    Py_ssize_t socket_receive(int fd, void *buffer, size_t size)
    int socket_close(int fd)
    int socket_finish_writing(int fd)
    bint socket_can_send(int fd) noexcept
    Py_ssize_t socket_send(int fd, const void *data, size_t size)
    Py_ssize_t socket_send_slices(int fd, iovec *slices, int count)

# How often one transport may fill its buffer in one turn of the loop, so that a fast peer does not starve the others.
cdef int READS_PER_TURN = 4
# Above this the peer has enough to do with the data to be given it when the program asks about the connection.
cdef size_t MAX_WAITING = 16 * 1024
# After a connection that had nothing to read yet, this many accepted connections are registered before they are read
# from.
cdef int REGISTERED_FIRST = 4
# Mutable data of this many bytes or more is sent first, and only what the kernel does not take is copied.
cdef Py_ssize_t SEND_BEFORE_COPYING = 16 * 1024
# Before 3.12 asyncio's writelines() joined its argument and called write(), so errors were those of joining.
cdef bint joins_lines = sys.version_info < (3, 12)
# The words for the accepted types in asyncio's TypeError; they changed in 3.14 and a late 3.13.
cdef str WRITE_TYPES = (
    "a bytes, bytearray, or memoryview object"
    if any("memoryview" in str(const) for const in selector_events._SelectorSocketTransport.write.__code__.co_consts)
    else "a bytes-like object"
)


@cython.final
cdef class StreamTransport(SocketTransport):
    """A connected stream socket's transport, as create_connection() and servers make it."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE
    max_size = READ_SIZE

    def __dealloc__(self):
        write_queue_clear(&self.unsent)

    cdef int release_resources(self) except -1:
        cdef object server = self.server
        self.server = None
        try:
            SocketTransport.release_resources(self)
        finally:
            if server is not None:
                detach_from_server(server, self)
        return 0

    cdef int connection_lost(self, object error) except -1:
        cdef object waiter = self.empty_waiter
        if self.unflushed:
            # The program has called _call_connection_lost() itself, or this is a forked child, which must not send.
            # From here on there is no loop.
            self.flush_early()
            self.unflushed = False
        try:
            Transport.connection_lost(self, error)
        finally:
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError("Connection is closed by peer"))
        return 0

    # -- registration with the poller ----------------------------------------------------------------------------------

    cdef int start(self) except -1:
        if self.peer is None or not self.edge_triggered or self.attached or self.paused or self.closing:
            return Transport.start(self)
        if self.loop.to_register_first:
            self.loop.to_register_first -= 1
            return Transport.start(self)
        self.started = self.reading = True
        return self.on_events(POLLER_READ)

    cdef int begin_reading(self) except -1:
        if not self.edge_triggered:
            return SocketTransport.begin_reading(self)
        self.check_socket()
        self.reading = True
        self.update_interest()
        if self.suspended or self.eof_received:
            # The poller may have dropped an event meanwhile: find out by a read.
            self.events |= POLLER_READ | POLLER_MORE
            self.suspended = self.eof_received = False
        if self.events & POLLER_READ:
            # The poller does not report an edge again.
            self.read_deferred = self.queued
            self.on_events(0)
        return 0

    cdef int end_reading(self) except -1:
        self.reading = False
        if self.is_attached() and not self.blocked:
            self.update_interest()
        return 0

    cdef int on_events(self, int events) except -1:
        if not self.edge_triggered and events & POLLER_READ and not self.reading:
            # Reading was paused while the socket was also registered for writing: the kernel would report reads again
            # and again.
            self.update_interest()
        return Transport.on_events(self, events)

    # -- reading -------------------------------------------------------------------------------------------------------

    cdef int ready_to_read(self) except -1:
        cdef int reads = READS_PER_TURN
        try:
            while self.events & POLLER_READ and self.reading and not self.paused and not self.closing:
                reads -= 1
                self.buffer_filled = False
                self.receive()
                if not self.edge_triggered:
                    # The poller reports again what is left.
                    self.events &= ~(POLLER_READ | POLLER_MORE)
                if reads == 0 or not self.buffer_filled:
                    break
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Errors of the protocol are handled where it is called; this one is the transport's, such as MemoryError.
            self.fatal_error(error, "Fatal read error on socket transport")
        finally:
            if not self.attached and self.reading and not self.closing:
                self.update_interest()
            # The poller does not report an edge again, so the transport queues itself to read the rest in the next
            # turn. That holds even if a callback has raised an exception that ends this run of the loop.
            # (`loop`: a callback may have called _call_connection_lost() itself.)
            if self.events & POLLER_READ and self.edge_triggered and self.reading and self.loop is not None:
                self.on_events(0)
        return 0

    cdef int receive(self) except -1:
        if self.kind == PLAIN:
            return self.receive_plain()
        if self.kind == BUFFERED:
            return self.receive_buffered()
        if self.kind == COMPILED:
            return self.receive_compiled()
        return self.receive_stream()

    cdef bint check_read(self, Py_ssize_t count, Py_ssize_t room) except -1:
        """Handle the result of a read of at most `room` bytes; True if the protocol gets data."""
        if count > 0:
            metrics_received(&self.loop.metrics, count)
            self.buffer_filled = count == room
            if not self.buffer_filled and not self.events & POLLER_MORE:
                self.events &= ~POLLER_READ
            return True
        if count == 0:
            # The protocol has written before it learns of the end. If that fails now, as asyncio's write() would have,
            # the connection is broken, and has no end.
            self.flush_early()
            # The events are cleared after the call: if KeyboardInterrupt ends it, the loop reports the end of file
            # again when it next runs.
            if not self.lost:
                self.on_eof()
            self.events &= ~(POLLER_READ | POLLER_MORE)
        elif count == -EAGAIN:
            self.events &= ~(POLLER_READ | POLLER_MORE)
            if not self.attached:
                self.loop.to_register_first = REGISTERED_FIRST
        else:
            self.fatal_error(os_error(count), "Fatal read error on socket transport")
        return False

    cdef int receive_plain(self) except -1:
        cdef Py_ssize_t room = self.next_read_size, count = 0
        cdef bint direct = room >= DIRECT_READ
        cdef PyObject *received
        cdef object data
        if not direct:
            room = READ_SIZE
            count = socket_receive(self.usable_fd(), self.loop.receive_buffer(), room)
            if not self.check_read(count, room):
                return 0
            data = self.loop.take_received(count)
        else:
            received = receive_bytes(socket_receive, self.usable_fd(), room, &count)
            if not self.check_read(count, room):
                return 0
            data = <object>received
            Py_DECREF(data)
        if direct or count >= DIRECT_READ:
            self.next_read_size = next_size(count)
        try:
            self.protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.data_received() call failed.")
        return 0

    cdef int receive_buffered(self) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t count, room
        try:
            buffer = self.protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.get_buffer() call failed.")
            buffer = None
        if buffer is None or self.fd < 0 or self.closing:
            return 0
        try:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        except Exception:
            # It is no writable buffer; the socket object's recv_into() raises the right exception.
            room = count = self.receive_by_socket_object(buffer)
        else:
            room = view.len
            count = socket_receive(self.usable_fd(), view.buf, room)
            PyBuffer_Release(&view)
        # The buffer may be a Python object whose methods were called, and these may have closed the transport.
        if self.loop is None or not self.check_read(count, room):
            return 0
        try:
            self.protocol.buffer_updated(count)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")
        return 0

    cdef Py_ssize_t receive_by_socket_object(self, object buffer) except? -1:
        cdef Py_ssize_t count = -EAGAIN
        try:
            count = self.socket_object().recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            pass
        return count

    cdef int receive_compiled(self) except -1:
        cdef char *place = self.loop.receive_buffer()
        cdef Py_ssize_t count = socket_receive(self.usable_fd(), place, READ_SIZE)
        if not self.check_read(count, READ_SIZE):
            return 0
        try:
            (<ByteProtocol>self.protocol).bytes_received(place, count)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # What asyncio calls it, where TLS is such a protocol, too.
            self.fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")
        return 0

    cdef int receive_stream(self) except -1:
        cdef object reader = reader_to_feed(self.protocol)
        cdef Py_ssize_t room = self.next_read_size, count
        cdef bint direct = room >= DIRECT_READ
        cdef char *space = NULL
        if reader is None:
            return self.receive_plain()
        if direct:
            try:
                space = reserve_space(reader, room)
            except (BufferError, MemoryError):
                # Read into the loop's buffer instead. If data has arrived the error occurs again below, and is reported
                # as the protocol's; if only the end of file has, there is no error.
                direct = False
        if not direct:
            room = READ_SIZE
            space = self.loop.receive_buffer()
        count = socket_receive(self.usable_fd(), space, room)
        if direct:
            return_space(reader, room - max(count, 0))
        if not self.check_read(count, room):
            return 0
        try:
            if not direct:
                memcpy(reserve_space(reader, count), space, count)
            wake_reader(reader)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.data_received() call failed.")
        if direct or count >= DIRECT_READ:
            self.next_read_size = next_size(count)
        return 0

    cdef int on_eof(self) except -1:
        if self.loop.debug:
            base_events.logger.debug("%r received EOF", self)
        try:
            keep_open = self.protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
        else:
            if keep_open:
                # Nothing more can be read, but the protocol may still write.
                self.eof_received = True
                self.end_reading()
            else:
                self.close()
        return 0

    def set_protocol(self, protocol):
        """Use another protocol from now on; it may take its data in another way."""
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.set_protocol, (protocol,))
        self.adopt_protocol(protocol)

    cdef int adopt_protocol(self, object protocol) except -1:
        self.protocol = protocol
        self.kind = kind_of(protocol)
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
        if self.empty_waiter is not None:
            raise RuntimeError(f"unable to {method}; sendfile is in progress")
        return 0

    def write(self, data):
        """Send bytes, a bytearray or a memoryview, which may be changed afterwards. Never blocks.

        TypeError for anything else, RuntimeError after write_eof(). See asyncio.WriteTransport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be {WRITE_TYPES}, not {type(data).__name__!r}")
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write, (bytes(data),))
        if self.eof_written or self.empty_waiter is not None:
            self.check_writable("write")
        if not data:
            return
        if self.lost:
            self.count_lost_write()
            return
        if self.unflushed and self.loop.is_inherited_by_fork():
            self.leave_to_parent()
        if self.enqueue(data):
            self.send_soon()

    def writelines(self, list_of_data):
        """Like write() for each item, but in one system call."""
        cdef int waiting
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write, (b"".join(list_of_data),))
        if joins_lines:
            self.write(b"".join(list_of_data))
            return
        self.check_writable("writelines")
        if not list_of_data:
            return
        chunks = bytes_or_views(list_of_data)
        if self.lost:
            self.count_lost_write()
            return
        if self.unflushed and self.loop.is_inherited_by_fork():
            self.leave_to_parent()
        waiting = self.unsent.count
        try:
            for data in chunks:
                if data and not self.enqueue(data):
                    return
        except BaseException:
            write_queue_truncate(&self.unsent, waiting)
            raise
        self.send_soon()

    cdef bint enqueue(self, object data) except -1:
        """Queue data to be sent. False if that has closed the connection: a send has failed, or the data is a view with
        gaps, which the kernel does not take."""
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
        """Send large data without copying it; true if the kernel has taken all of it."""
        cdef Py_buffer view
        cdef Py_ssize_t count
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len < SEND_BEFORE_COPYING:
                return False
            count = socket_send(self.usable_fd(), view.buf, view.len)
            if count > 0:
                sent[0] = count
                metrics_sent(&self.loop.metrics, count)
        finally:
            PyBuffer_Release(&view)
        if count < 0 and count != -EAGAIN:
            self.write_failed(os_error(count))
        return count == view.len

    cdef int send_soon(self) except -1:
        """Send what is queued at the end of the turn, or at once if waiting gains nothing."""
        if self.lost:
            # write() has checked this, but a buffer may be a Python object whose methods were called since.
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

    cdef int send_before_fork(self) noexcept:
        cdef Py_ssize_t sent
        cdef int full = False
        if self.blocked or self.lost or self.loop.is_inherited_by_fork():
            return 0
        while self.unsent.bytes and not full:
            sent = write_queue_send(&self.unsent, self.usable_fd(), socket_send_slices, &full)
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
            sent = write_queue_send(&self.unsent, self.usable_fd(), socket_send_slices, &full)
            if sent < 0 and not full:
                self.write_failed(os_error(sent))
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
        if self.lost or not self.blocked:
            return 0
        self.send_now()
        if self.lost:
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
        if FREE_THREADED and runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write_eof, ())
        if self.closing or self.eof_written:
            return
        self.flush_early()
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
        # The transport stays on the loop's list; flush() will find nothing to do. A forked child must not send what the
        # parent will send, and only the loop's thread may send at all.
        if self.write_failing or (FREE_THREADED and runs_in_other_thread(self.loop)):
            return 0
        if self.kind == COMPILED and self.protocol is not None:
            (<ByteProtocol>self.protocol).flush_early()
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
        """Whether so much data had better wait for the end of the turn, when sending it would not show that the
        connection is broken. The kernel is asked, which costs less than waking the peer for each message."""
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
        """Let loop.sendfile() register the descriptor. Reading begins again with resume_reading()."""
        self.stop_watching()

    def _detach_after_sendfile(self):
        """After _detach_for_sendfile(): remove the descriptor if it is still registered."""
        if self.fd >= 0 and not self.attached and self.loop is not None and self.loop.poller is not None:
            if self.usable_fd() >= 0:
                self.loop.poller.detach(self.fd)

    # -- the private names by which asyncio's own code and libraries read the state ------------------------------------

    @property
    def _eof(self):
        return self.eof_written

    @property
    def _server(self):
        return self.server

cdef StreamTransport open_stream(
    LoopCore loop, object sock, bint exposed, int fd, bytes peer, bint tcp, object protocol, object context,
    object waiter, object extra, object server
):
    """A transport for a connected, non-blocking socket. It is given as a Python socket object, `exposed` if the program
    has it, too; or, with `sock` None, as a descriptor with the address of the `peer`. The transport owns the descriptor
    from here on. `tcp`: the caller knows that it is a TCP socket."""
    cdef StreamTransport transport
    try:
        transport = StreamTransport.__new__(StreamTransport)
    except MemoryError:
        if sock is None:
            socket_close(fd)
        raise
    if sock is None:
        transport.fd = fd
        transport.peer = peer
    else:
        transport.adopt_socket(sock, extra, exposed)
        # What the object says of a socket that create_connection() has made is true of the kernel's socket, too.
        tcp = transport.set_no_delay() and not exposed and server is None
    transport.edge_triggered = tcp or transport.is_tcp()
    try:
        transport.adopt_protocol(protocol)
        if server is not None:
            transport.server = server
            attach_to_server(server, transport)
        transport.open(loop, protocol, context, waiter)
        transport.count_as(METRICS_TCP if transport.edge_triggered else METRICS_STREAM)
    except BaseException:
        transport.release_resources()
        raise
    return transport
