"""StreamReceiver: the base class of StreamTransport. It reads, and hands to the protocol what it has read.

A TCP socket is registered once, edge-triggered. Pausing and waiting for room to write only change flags of the
transport and cost no system call. An edge is reported once. So the transport remembers it until a read has found the
socket empty; a read that does not fill its buffer has found it empty. (Urgent data and the peer's close end a read
early. After these, reported as POLLER_MORE, the transport reads until there is nothing.) If something is left at the
end of its turn, or may be there when reading is resumed, the transport has the kernel report it again, in one system
call. So it comes at the next poll, as from a level-triggered socket. All other streams are such: the kernel remembers.

Source: tcp(7), unix(7), epoll(7); asyncio/selector_events.py.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.errno cimport EAGAIN
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from hotloop._c.loop.polling cimport waiting_work
from hotloop._c.loop.state cimport metrics_received
from hotloop._c.poller.watcher cimport POLLER_MORE, POLLER_READ
from hotloop._c.system.os_errors cimport caught_os_error
from hotloop._c.system.receive cimport DIRECT_READ, READ_SIZE, next_size, receive_bytes
from hotloop._c.transports.base cimport Transport
from hotloop._c.transports.protocol_kind cimport BUFFERED, COMPILED, PLAIN, ByteProtocol, kind_of
from hotloop._c.transports.socket_transport cimport SocketTransport
from hotloop._c.transports.reader_feed cimport (
    buffer_to_feed,
    reader_to_feed,
    reserve_space,
    return_space,
    wake_reader,
)

from asyncio import base_events

cdef extern from "system/clock.h":
    uint64_t clock_ticks() noexcept

cdef extern from "system/socket_calls.h":
    Py_ssize_t socket_receive(int fd, void *buffer, size_t size)

# For how many time slices (SLICE) after a poll a transport that fills its buffer reads on in the same turn, if nothing
# else waits. A millisecond is enough to empty the receive buffer of a TCP connection on one machine, a few megabytes: a
# sender in the same process then fills it anew while its memory is still in the processor's cache, at half the cost.
cdef int READING_SLICES = 10


cdef class StreamReceiver(SocketTransport):
    """The reading half of a stream socket's transport. Writing, and flush_early() with it, is the subclass's."""

    # -- registration with the poller ----------------------------------------------------------------------------------

    cdef int rearm(self, int events) noexcept:
        self.events &= ~events
        if self.loop is None or self.loop.poller is None:
            return 0
        if self.usable_fd() < 0 or self.loop.poller.rearm(self.fd) == 0:
            return 0
        try:
            # The kernel will not report them, so the next turn has a look.
            self.on_events(events)
        except MemoryError:
            pass
        return 0

    cdef int report_again(self) except -1:
        if self.edge_triggered and self.loop is not None and self.loop.poller is not None and self.usable_fd() >= 0:
            self.loop.poller.rearm(self.fd)
        return 0

    cdef int end_reading(self) except -1:
        self.reading = False
        if self.is_attached() and not self.blocked:
            self.update_interest()
        return 0

    cdef int on_events(self, int events) except -1:
        if not self.edge_triggered and events & POLLER_READ and not self.reading and self.loop is not None:
            # Reading was paused while the socket was also registered for writing: the kernel would report reads again
            # and again.
            self.update_interest()
        return Transport.on_events(self, events)

    # -- reading -------------------------------------------------------------------------------------------------------

    cdef int ready_to_read(self) except -1:
        try:
            while self.events & POLLER_READ and self.reading and not self.paused and not self.closing:
                self.buffer_filled = False
                self.receive()
                if not self.edge_triggered:
                    # The poller reports again what is left.
                    self.events &= ~(POLLER_READ | POLLER_MORE)
                if not self.buffer_filled or self.loop is None or waiting_work(self.loop):
                    break
                if self.kind == BUFFERED:
                    # get_buffer() is only called when there is something to read.
                    break
                if clock_ticks() - self.loop.metrics.backoff.polled_at > READING_SLICES * self.loop.metrics.slice_ticks:
                    break
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # Errors of the protocol are handled where it is called; this one is the transport's, such as MemoryError.
            self.fatal_error(error, "Fatal read error on socket transport")
        finally:
            # The rest comes with the next poll, even if a callback has raised an exception that ends this run of the
            # loop. (`loop`: a callback may have called _call_connection_lost() itself.)
            if self.events & POLLER_READ and self.edge_triggered and self.reading and self.loop is not None:
                self.rearm(POLLER_READ | POLLER_MORE)
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
        cdef Py_ssize_t lost
        if count > 0:
            metrics_received(&self.loop.metrics, count)
            self.buffer_filled = count == room
            if not self.buffer_filled and not self.events & POLLER_MORE:
                self.events &= ~POLLER_READ
            return True
        if count == 0:
            # The protocol has written before it learns of the end. If that fails now, as asyncio's write() would have,
            # the connection is broken, and has no end.
            lost = self.lost
            self.flush_early()
            # The events are cleared after the call: if KeyboardInterrupt ends it, the loop reports the end of file
            # again when it next runs.
            if self.lost == lost:
                self.on_eof()
            self.events &= ~(POLLER_READ | POLLER_MORE)
        elif count == -EAGAIN:
            self.events &= ~(POLLER_READ | POLLER_MORE)
        else:
            self.fatal_error(caught_os_error(count), "Fatal read error on socket transport")
        return False

    cdef int receive_plain(self) except -1:
        cdef Py_ssize_t room = self.largest_read, count = 0
        # With room for as much as can come: a guess from the last read takes up to twice as many reads for much data.
        cdef bint direct = min(self.next_read_size, room) >= DIRECT_READ
        cdef PyObject *received
        cdef object data
        if not direct:
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
        cdef bint is_plain = False
        try:
            buffer = self.protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal error: protocol.get_buffer() call failed.")
            buffer = None
        if buffer is None or self.fd < 0:
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
            is_plain = type(buffer) is bytearray or type(buffer) is memoryview
        if not is_plain:
            # The buffer's methods may have ended the transport, or run the loop. Then the event for what has come since
            # the read is gone: ready_to_read() has the kernel report it again.
            if self.loop is None or count == -EAGAIN:
                return 0
            room = count
        if not self.check_read(count, room):
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
        # Kept, because the application may set another protocol here, and drop this one.
        cdef ByteProtocol protocol = <ByteProtocol>self.protocol
        cdef char *place = self.loop.receive_buffer()
        cdef Py_ssize_t count = socket_receive(self.usable_fd(), place, READ_SIZE)
        if not self.check_read(count, READ_SIZE):
            return 0
        try:
            protocol.bytes_received(place, count)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # What asyncio calls it, where TLS is such a protocol, too.
            self.fatal_error(error, "Fatal error: protocol.buffer_updated() call failed.")
        return 0

    cdef int receive_stream(self) except -1:
        cdef object reader = reader_to_feed(self.protocol), buffer = None
        cdef Py_ssize_t room = min(self.next_read_size, self.largest_read), count
        cdef bint direct = room >= DIRECT_READ
        cdef char *space = NULL
        if self.loop is None:
            # A property that a program has put into asyncio's classes has ended this transport.
            return 0
        if reader is None:
            return self.receive_plain()
        if direct:
            try:
                buffer = buffer_to_feed(reader)
                space = reserve_space(buffer, room)
            except (BufferError, MemoryError, TypeError):
                # Read into the loop's buffer instead. If data has arrived the error occurs again below, and is reported
                # as the protocol's; if only the end of file has, there is no error.
                direct = False
        if not direct:
            if self.loop is None:
                return 0
            room = self.largest_read
            space = self.loop.receive_buffer()
        count = socket_receive(self.usable_fd(), space, room)
        if direct:
            return_space(buffer, room - max(count, 0))
        if not self.check_read(count, room):
            return 0
        try:
            if not direct:
                memcpy(reserve_space(buffer_to_feed(reader), count), space, count)
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
                self.end_reading()
            else:
                self.close()
        return 0

    cdef int replace_protocol(self, object protocol) except -1:
        # It may take its data in another way. isinstance() may raise, and then nothing changes.
        cdef ProtocolKind kind = kind_of(protocol)
        # The one before goes last: its finalizer may run the loop.
        cdef object _before = self.protocol
        Transport.replace_protocol(self, protocol)
        self.kind = kind
        return 0
