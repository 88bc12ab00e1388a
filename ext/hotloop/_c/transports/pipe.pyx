"""ReadPipeTransport, WritePipeTransport: pipes, FIFOs, terminals and other character devices, sockets given as files.

Descriptors are registered level-triggered, because terminals and packet pipes return short from a read while there is
more. pause_reading() leaves the kernel's set unchanged until an event is reported, since most pauses are over by then;
so does a writer whose queue has become empty. Of a message that does not fit into a read the rest is lost, so sockets
and devices are always read in parts as large as asyncio's; a packet pipe's messages are no larger than a page.

A write is made at once, as by asyncio, not at the end of the turn, as on sockets. The kernel never mixes a write of up
to PIPE_BUF bytes with other processes' writes (pipe(7)); devices and packet pipes give each write a meaning; and a
child must have its input before the signal that is sent next. Only what the kernel does not take is gathered.

Source: asyncio/unix_events.py; pipe(7), tty(4).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.errno cimport EAGAIN, EIO

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.state cimport METRICS_READ_PIPE, METRICS_WRITE_PIPE, metrics_received, metrics_sent
from hotloop._c.loop.unflushed cimport send_all_early
from hotloop._c.poller.descriptor_callbacks cimport detach_if_unused, receiver_of, remove_receiver, set_receiver
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE
from hotloop._c.scheduler.handles cimport copy_context
from hotloop._c.system.os_errors cimport caught_os_error
from hotloop._c.system.receive cimport next_size, receive_bytes, receive_waiting
from hotloop._c.transports.base cimport SILENT_LOST_WRITES, Transport, report_error
from hotloop._c.transports.write_queue cimport (
    as_plain_data,
    iovec,
    write_queue_append,
    write_queue_clear,
    write_queue_send,
)

import os
import stat
import sys
from asyncio import base_events, transports, unix_events

from hotloop._asyncio.unclosed import unclosed_warning

cdef object warn_unclosed_read_pipe = unclosed_warning(unix_events._UnixReadPipeTransport)
cdef object warn_unclosed_write_pipe = unclosed_warning(unix_events._UnixWritePipeTransport)

cdef extern from "system/pipe_calls.h":
    Py_ssize_t pipe_read(int fd, void *buffer, size_t size)
    Py_ssize_t pipe_write(int fd, const void *data, size_t size)
    Py_ssize_t pipe_write_chunks(int fd, iovec *chunks, int count)
    bint pipe_is_open(int fd)

# On these systems a named FIFO is readable to its writer while it holds unread data (cpython#145030).
cdef bint FIFOS_MISLEAD = sys.platform in {"darwin", "ios", "tvos", "watchos"}


cdef class PipeTransport(Transport):
    """What both directions share: a file object. Another transport may use its descriptor in the other direction."""

    cdef bint is_open(self) noexcept:
        return self.pipe is not None

    cdef int add_interest(self, int event) except -1:
        """Ask the poller to report an event."""
        if self.loop.poller is None:
            self.loop.check_open()
        self.check_descriptor()
        if self.loop is None or self.loop.poller is None:
            return 0
        set_receiver(self.loop.poller, self.fd, event, self)
        self.registered = True
        return 0

    cdef int remove_interest(self, int event) except -1:
        if self.registered and self.loop is not None and self.loop.poller is not None:
            remove_receiver(self.loop.poller, self.fd, event, self)
        return 0

    cdef int release_resources(self) except -1:
        cdef object pipe = self.pipe
        cdef int fd = self.fd
        cdef object reader = None, writer = None
        self.count_as(0)
        if pipe is None:
            # The program has set _pipe to None.
            return self.stop_watching()
        try:
            self.stop_watching()
            if fd >= 0 and self.loop is not None and self.loop.poller is not None:
                reader = receiver_of(self.loop.poller, fd, POLLER_READ)
                writer = receiver_of(self.loop.poller, fd, POLLER_WRITE)
        finally:
            self.pipe = None
            self.forget_descriptor()
            pipe.close()
        for other in (reader, writer):
            if isinstance(other, PipeTransport) and not pipe_is_open(fd):
                (<PipeTransport>other).on_file_closed()
        return 0

    cdef int stop_watching(self) except -1:
        if self.registered and self.fd >= 0 and self.loop is not None and self.loop.poller is not None:
            self.registered = False
            remove_receiver(self.loop.poller, self.fd, POLLER_READ, self)
            remove_receiver(self.loop.poller, self.fd, POLLER_WRITE, self)
            detach_if_unused(self.loop.poller, self.fd)
        return 0

    cdef int on_file_closed(self) except -1:
        """The program or the transport of the other direction has closed the file: give up the number, which may belong
        to another file by now."""
        self.stop_watching()
        return self.forget_descriptor()

    cdef int check_descriptor(self) except -1:
        """Before a system call: give up the number if the file object no longer has it. Nothing else shows that it was
        closed."""
        cdef object fd = -1
        # The program may have set _pipe to None.
        if self.pipe is None or self.fd < 0:
            return 0
        try:
            fd = self.pipe.fileno()
        except (SystemExit, KeyboardInterrupt, MemoryError):
            raise
        except BaseException:
            pass
        return 0 if fd == self.fd else self.on_file_closed()

    cdef int forget_descriptor(self) except -1:
        if self.fd >= 0:
            self.closed_fd = self.fd
        self.fd = -1
        self.events = 0
        return 0

    @property
    def _pipe(self):
        return self.pipe

    @_pipe.setter
    def _pipe(self, pipe):
        # A program sets None to keep the file open when the transport closes.
        self.pipe = pipe

    @property
    def _fileno(self):
        return self.fd if self.fd >= 0 else self.closed_fd

    def __repr__(self):
        # As asyncio's, which says "closed" twice.
        info = [type(self).__name__]
        if self.pipe is None:
            info.append("closed")
        elif self.closing:
            info.append("closing")
        info.append(f"fd={self._fileno}")
        if self.pipe is None:
            info.append("closed")
        elif self.loop is None or self.loop.is_closed():
            info.append("open")
        else:
            info.extend(self._activity())
        return f"<{' '.join(info)}>"


@cython.final
cdef class ReadPipeTransport(PipeTransport):
    """The transport that loop.connect_read_pipe() makes: see asyncio.ReadTransport."""

    cdef int warn_unclosed(self) except -1:
        warn_unclosed_read_pipe(self)
        return 0

    @property
    def __class__(self):
        return transports.ReadTransport

    cdef int begin_reading(self) except -1:
        self.events &= ~POLLER_READ
        return self.add_interest(POLLER_READ)

    cdef int end_reading(self) except -1:
        return self.remove_interest(POLLER_READ)

    cdef int ready_to_read(self) except -1:
        cdef Py_ssize_t count = 0
        cdef object data
        self.events = 0
        self.check_descriptor()
        if self.lost:
            return 0
        data = self.read(&count)
        if count > 0:
            metrics_received(&self.loop.metrics, count)
            if self.estimates:
                self.next_read_size = next_size(count)
            # As in asyncio, an exception here is reported and does not close the transport.
            try:
                self.protocol.data_received(data)
            except MemoryError as error:
                # The protocol may have missed the data, and must not get what comes after a gap.
                self.fatal_error(error, "Fatal error: protocol.data_received() call failed.")
        elif count == 0:
            self.on_eof()
        elif count != -EAGAIN:
            self.fatal_error(caught_os_error(count), "Fatal read error on pipe transport")
        return 0

    cdef bytes read(self, Py_ssize_t *count):
        """Read once: the data, or None unless `count` is positive."""
        cdef Py_ssize_t size = min(self.next_read_size, self.largest_read)
        cdef PyObject *direct
        cdef bytes data
        if size:
            direct = receive_bytes(pipe_read, self.fd, size, count)
            if direct == NULL:
                return None
            # asyncio reads up to max_size in one call; so a guess that was too small must not make two turns of it.
            if count[0] == size < self.largest_read:
                direct = receive_waiting(pipe_read, self.fd, direct, self.largest_read, count)
            data = <bytes>direct
            Py_DECREF(data)
            return data
        count[0] = pipe_read(self.fd, self.loop.receive_buffer(), self.largest_read)
        return self.loop.take_received(count[0]) if count[0] > 0 else None

    cdef int on_eof(self) except -1:
        # Kept: a handler of the log, or a finalizer that an allocation has run, may end this transport.
        cdef LoopCore loop = self.loop
        if loop.debug:
            base_events.logger.info("%r was closed by peer", self)
        eof = loop.schedule_call(self.protocol.eof_received, (), copy_context(self.context))
        try:
            self.schedule_connection_lost(None)
        except BaseException:
            eof.cancel()
            raise
        return 0

    cdef int ready_to_write(self) except -1:
        return 0

    cdef int discard_unsent(self) except -1:
        return 0

    cdef int fatal_error(self, object error, str message) except -1:
        if self.loop is None or (isinstance(error, OSError) and error.errno == EIO):
            # A terminal returns EIO when its other side is closed. All other OSErrors are reported, as by asyncio.
            return Transport.fatal_error(self, error, message)
        report_error(self.loop, self, message, error)
        return self.force_close(error)

    def _activity(self):
        return ["polling" if self.started and self.fd >= 0 and self.is_reading() else "idle"]


@cython.final
cdef class WritePipeTransport(PipeTransport):
    """The transport that loop.connect_write_pipe() makes: see asyncio.WriteTransport."""

    cdef int warn_unclosed(self) except -1:
        warn_unclosed_write_pipe(self)
        return 0

    def __dealloc__(self):
        write_queue_clear(&self.unsent)

    cdef int start(self) except -1:
        """Look for the reader's end even if connection_made() has closed the transport: its writes may still wait."""
        self.started = True
        if not self.lost:
            self.begin_reading()
        return 0

    cdef int begin_reading(self) except -1:
        """Ask for read events, which show that the reader has closed, unless another transport reads from this
        descriptor."""
        cdef PollerSelector poller = self.loop.poller
        if self.shows_hang_up and poller is not None and receiver_of(poller, self.fd, POLLER_READ) is None:
            self.add_interest(POLLER_READ)
        return 0

    cdef int end_reading(self) except -1:
        return 0

    cdef int handle_events(self, int events) except -1:
        cdef int outer = self.running
        self.events &= ~events
        if self.lost:
            return 0
        try:
            self.running = outer | events
            if events & POLLER_READ:
                self.on_reader_closed()
            if events & POLLER_WRITE and not self.lost:
                self.ready_to_write()
        finally:
            self.running = outer
            if self.events & ~outer and not self.lost:
                # The write that on_file_closed() has queued had to wait for the end of ready_to_write().
                self.on_events(0)
        return 0

    cdef int on_reader_closed(self) except -1:
        if self.loop.debug:
            base_events.logger.info("%r was closed by peer", self)
        return self.force_close(BrokenPipeError() if self.unsent.bytes else None)

    def is_reading(self):
        raise NotImplementedError

    def pause_reading(self):
        raise NotImplementedError

    def resume_reading(self):
        raise NotImplementedError

    # -- writing -------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return self.unsent.bytes

    cdef int discard_unsent(self) except -1:
        write_queue_clear(&self.unsent)
        return 0

    def write(self, data):
        """Write bytes, a bytearray or a memoryview, which may be changed afterwards. Never blocks.

        TypeError for anything else. See asyncio.WriteTransport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write, (bytes(data),))
        if isinstance(data, bytearray):
            # asyncio asks a bytearray before anything else, and raises what that raises.
            data = as_plain_data(data)
        if not data:
            return
        if self.closing:
            self.ignore_write()
            return
        data = self.ask_for_memory(data)
        if data is None:
            return
        if type(data) is memoryview and not data.c_contiguous:
            data = data.tobytes()
        self.send(data)
        self.maybe_pause_protocol()

    def writelines(self, list_of_data):
        """Write the items joined."""
        self.write(b"".join(list_of_data))

    cdef object ask_for_memory(self, object data):
        """as_plain_data(). An exception counts as one of the os.write() that asyncio would have called: None. None,
        too, if asking has dropped what waited: nothing may follow the gap."""
        cdef bint waits = self.unsent.bytes > 0
        try:
            data = as_plain_data(data)
        except (SystemExit, KeyboardInterrupt, MemoryError, BlockingIOError, InterruptedError):
            raise
        except BaseException as error:
            # asyncio appends the data to what waits.
            if waits:
                raise
            self.ignored_writes += 1
            self.fatal_error(error, "Fatal write error on pipe transport")
            data = None
        return None if waits and self.lost else data

    cdef int send(self, object data) except -1:
        """Write what the kernel takes at once; queue the rest. If the queue is not empty, queue all."""
        cdef LoopCore loop = self.loop
        cdef Py_buffer view
        cdef Py_ssize_t sent = 0
        if self.unsent.bytes:
            return self.enqueue(data, 0)
        send_all_early()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.check_descriptor()
            # The file object may be a Python object whose methods have written.
            sent = -EAGAIN if self.unsent.bytes else pipe_write(self.fd, view.buf, view.len)
            if sent > 0:
                metrics_sent(&loop.metrics, sent)
        finally:
            PyBuffer_Release(&view)
        if sent == view.len or self.lost:
            # Lost: the data, or the file object, is a Python object whose methods have ended the transport.
            return 0
        if sent < 0 and sent != -EAGAIN:
            self.ignored_writes += 1
            return self.fatal_error(caught_os_error(sent), "Fatal write error on pipe transport")
        self.add_interest(POLLER_WRITE)
        return self.enqueue(data, max(sent, 0))

    cdef int on_file_closed(self) except -1:
        PipeTransport.on_file_closed(self)
        # No event would come any more: queue a write, which fails and closes the transport.
        return self.on_events(POLLER_WRITE) if self.unsent.bytes and not self.lost else 0

    cdef int enqueue(self, object data, Py_ssize_t start) except -1:
        """Queue data, from the byte `start` on: bytes as they are, other data as a copy."""
        cdef bytes owned
        if type(data) is not bytes:
            data = bytes(memoryview(data).cast("B")[start:])
            start = 0
        owned = data
        cdef const char *rest = PyBytes_AS_STRING(owned) + start
        if write_queue_append(&self.unsent, owned, rest, PyBytes_GET_SIZE(owned) - start) < 0:
            raise MemoryError
        return 0

    cdef int send_queued(self) except -1:
        """Write what the kernel takes. The rest waits for POLLER_WRITE."""
        cdef Py_ssize_t sent
        cdef int full = False
        self.check_descriptor()
        while self.unsent.bytes and not full:
            sent = write_queue_send(&self.unsent, self.fd, pipe_write_chunks, &full)
            if sent < 0 and not full:
                self.ignored_writes += 1
                return self.fatal_error(caught_os_error(sent), "Fatal write error on pipe transport")
            if sent > 0:
                metrics_sent(&self.loop.metrics, sent)
        return self.add_interest(POLLER_WRITE) if full else self.remove_interest(POLLER_WRITE)

    cdef int ready_to_write(self) except -1:
        send_all_early()
        self.send_queued()
        if self.lost or self.unsent.bytes:
            # asyncio resumes the protocol of a pipe when all is written, not at the low-water mark. The reader does not
            # run out of data meanwhile: the pipe is full at that moment.
            return 0
        self.maybe_resume_protocol()
        if self.closing and not self.lost and not self.unsent.bytes:
            self.lost += 1
            self.connection_lost(None)
        return 0

    cdef int ignore_write(self) except -1:
        if self.ignored_writes >= SILENT_LOST_WRITES:
            base_events.logger.warning("pipe closed by peer or os.write(pipe, data) raised exception.")
        self.ignored_writes += 1
        return 0

    def can_write_eof(self):
        """True: closing is the end of the file."""
        return True

    def write_eof(self):
        """Like close(): write what is buffered, then close. Idempotent."""
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.write_eof, ())
        if self.closing:
            return
        if self.unsent.bytes:
            self.closing = True
        else:
            self.schedule_connection_lost(None)

    def close(self):
        """Write what is buffered, then close. Idempotent."""
        self.write_eof()

    def _activity(self):
        return ["polling" if self.unsent.bytes else "idle", f"bufsize={self.unsent.bytes}"]


cdef int open_pipe(
    PipeTransport transport, LoopCore loop, object pipe, int fd, object protocol, object waiter, object extra
) except -1:
    """Open the transport on `pipe`, which it owns from here on, also if that fails: nothing refers to the transport
    then, and it closes the pipe."""
    transport.extra = {**(extra or {}), "pipe": pipe}
    transport.fd = fd
    transport.pipe = pipe
    os.set_blocking(fd, False)
    transport.open(loop, protocol, None, waiter)
    return 0


cdef ReadPipeTransport open_read_pipe(LoopCore loop, object pipe, object protocol, object waiter, object extra):
    """A transport that reads from a file object. ValueError, before anything is changed, unless it is a pipe, socket or
    character device."""
    cdef ReadPipeTransport transport = ReadPipeTransport.__new__(ReadPipeTransport)
    cdef int fd = pipe.fileno()
    mode = os.fstat(fd).st_mode
    if not can_be_polled(mode):
        raise ValueError("Pipe transport is for pipes/sockets only.")
    transport.estimates = stat.S_ISFIFO(mode)
    open_pipe(transport, loop, pipe, fd, protocol, waiter, extra)
    transport.count_as(METRICS_READ_PIPE)
    return transport


cdef WritePipeTransport open_write_pipe(LoopCore loop, object pipe, object protocol, object waiter, object extra):
    """A transport that writes to a file object. ValueError, before anything is changed, unless it is a pipe, socket or
    character device."""
    cdef WritePipeTransport transport = WritePipeTransport.__new__(WritePipeTransport)
    cdef int fd = pipe.fileno()
    status = os.fstat(fd)
    if not can_be_polled(status.st_mode):
        raise ValueError("Pipe transport is only for pipes, sockets and character devices")
    transport.shows_hang_up = not stat.S_ISCHR(status.st_mode) and not (
        FIFOS_MISLEAD and stat.S_ISFIFO(status.st_mode) and status.st_nlink > 0
    )
    open_pipe(transport, loop, pipe, fd, protocol, waiter, extra)
    transport.count_as(METRICS_WRITE_PIPE)
    return transport


cdef bint can_be_polled(object mode) except -1:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
