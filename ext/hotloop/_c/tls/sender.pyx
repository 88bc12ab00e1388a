"""TlsSender: encrypts what the application writes and passes the records to the transport below.

What is written in one turn of the loop is encrypted at its end, small writes together in one record. Records go
directly into the write queue of a StreamTransport; any other transport gets them by its write().
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from hotloop._c.tls.engine cimport MAX_PLAINTEXT
from hotloop._c.tls.receiver cimport TlsReceiver
from hotloop._c.transports.base cimport SILENT_LOST_WRITES, as_size
from hotloop._c.transports.protocol_kind cimport COMPILED, ByteProtocol
from hotloop._c.transports.stream cimport StreamTransport
from hotloop._c.transports.write_queue cimport (
    FLUSH_AT,
    as_plain_data,
    bytes_or_views,
    write_queue_clear,
    write_queue_consume,
    write_queue_append_data,
    write_queue_truncate,
    write_queue_front,
    write_queue_peek,
)

from asyncio import constants, exceptions, sslproto
from asyncio.log import logger

# Large writes are sent in parts of this much ciphertext, before the rest is encrypted: the peer can begin to read, and
# the part is still in the processor's cache. It is no multiple of 64 KiB, because on the loopback interface that leaves
# a segment of a few bytes. There a download took 313 us of processor time a MiB with 7 records at a time, 402 with 5,
# 567 with 12 and 552 with all of a write of 256 KiB (CPython 3.14, Linux 6.18, 2 cores).
cdef Py_ssize_t PART = 7 * MAX_PLAINTEXT

# _force_close() of asyncio's own TLS transport raises a TypeError up to Python 3.12. A loop has such a transport if the
# program has patched the socket class, for example.
cdef bint force_close_is_broken = sslproto.SSLProtocol._abort.__code__.co_argcount < 2


@cython.no_gc_clear
cdef class TlsSender(TlsReceiver):
    """The part of TlsProtocol that writes: see protocol.pyx."""

    def __dealloc__(self):
        write_queue_clear(&self.unencrypted)

    cdef int set_write_limits(self, object high, object low) except -1:
        high, low = sslproto.add_flowcontrol_defaults(high, low, constants.FLOW_CONTROL_HIGH_WATER_SSL_WRITE)
        self.write_high = as_size(high)
        self.write_low = as_size(low)
        # Other threads may be reading them.
        limits = (low, high)
        with cython.critical_section(self):
            self.write_limits, limits = limits, self.write_limits
        return 0

    cdef bint accept_write(self) except -1:
        """Whether the connection can still send. If not, the write is lost, and counted."""
        if self.state == HANDSHAKE or self.state == OPEN:
            return True
        if self.lost_writes >= SILENT_LOST_WRITES:
            logger.warning("SSL connection is closed")
        self.lost_writes += 1
        return False

    cdef int write(self, object data) except -1:
        data = self.ask_for_memory(data)
        if data is None or not self.accept_write():
            return 0
        self.leave_to_parent_if_forked()
        if type(data) is not bytes and self.write_uncopied(data):
            return 0
        write_queue_append_data(&self.unencrypted, data)
        return self.send_soon()

    cdef object ask_for_memory(self, object data):
        """as_plain_data(). An exception is one of encrypting the data, as in asyncio, which asks then: None."""
        try:
            return as_plain_data(data)
        except MemoryError:
            raise
        except Exception as error:
            if self.accept_write():
                self.flush_early()
                self.sending_failed(error)
        return None

    cdef bint write_uncopied(self, object data) except -1:
        """Encrypt large data at once, without a copy. False if nothing was done: the data is small, or has to wait."""
        cdef Py_buffer view
        cdef Py_ssize_t done = 0, taken = 0
        if self.state != OPEN or self.sending_paused or self.unencrypted.bytes:
            return False
        try:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        except BufferError:
            return False
        try:
            if view.len < FLUSH_AT:
                return False
            while done < view.len and taken >= 0:
                taken = self.make_record(<const char *>view.buf + done, min(view.len - done, <Py_ssize_t>MAX_PLAINTEXT))
                done += max(taken, 0)
                if self.engine.interruption is not None:
                    self.engine.raise_interruption()
                self.send_full_part()
            self.queue_copy(<const char *>view.buf + done, view.len - done)
            done = view.len
            self.send_records_unless_paused()
        except Exception as error:
            self.sending_failed(error)
        except BaseException:
            # An interrupt. What is written later must not come without the rest of this.
            self.queue_copy(<const char *>view.buf + done, view.len - done)
            self.send_later()
            raise
        finally:
            PyBuffer_Release(&view)
        self.control_app_writing()
        return True

    cdef int queue_copy(self, const char *data, Py_ssize_t size) except -1:
        if size:
            write_queue_append_data(&self.unencrypted, PyBytes_FromStringAndSize(data, size))
        return 0

    cdef int write_all(self, object chunks) except -1:
        cdef int waiting
        if not self.accept_write():
            return 0
        self.leave_to_parent_if_forked()
        # Before the queue is looked at: an iterator of the program may write.
        chunks = bytes_or_views(chunks)
        waiting = self.unencrypted.count
        try:
            for data in chunks:
                if data:
                    write_queue_append_data(&self.unencrypted, data)
        except BaseException:
            write_queue_truncate(&self.unencrypted, waiting)
            raise
        return self.send_soon()

    cdef int send_soon(self) except -1:
        """Encrypt and send at the end of the turn, or at once if waiting gains nothing."""
        if self.state != OPEN or self.sending_paused:
            return self.control_app_writing()
        if not self.loop.batch_running or self.unencrypted.bytes >= <size_t>FLUSH_AT or self.is_used_by_program():
            return self.send_now(False)
        if not self.unflushed:
            if self.loop.is_inherited_by_fork():
                return self.send_now(False)
            try:
                self.loop.unflushed.add(self)
                self.unflushed = True
            except MemoryError:
                # No `return` here: Cython would build the exception's traceback, for which there may be no memory
                # either.
                pass
        # Without memory to wait for the end of the turn, send now, so that no data is lost.
        return 0 if self.unflushed else self.send_now(False)

    cdef int flush(self) except -1:
        self.unflushed = False
        return self.send_now(False)

    cdef int leave_to_parent_if_forked(self) except -1:
        """Before a write that is not lost."""
        if self.unflushed or (self.stream is not None and self.stream.unflushed):
            if self.loop.is_inherited_by_fork():
                self.leave_to_parent()
        return 0

    cdef int send_early(self) noexcept:
        cdef StreamTransport stream = self.stream
        if stream is None or stream.blocked or stream.lost or self.sending_paused or self.state != OPEN:
            return 0
        if self.loop.is_inherited_by_fork() or not self.engine.may_encrypt_before_fork():
            return 0
        try:
            while self.unencrypted.bytes and self.encrypt_oldest():
                pass
        except Exception:
            # The next record fails as well, and that is reported.
            pass
        return stream.send_early()

    cdef int leave_to_parent(self) except -1:
        """In a forked child: drop what was written in the turn of the fork. It is encrypted before, because the child's
        own records must have the numbers that follow those of the parent's."""
        cdef StreamTransport stream = self.stream
        self.unflushed = False
        if self.sending_paused or (stream is not None and stream.blocked):
            # asyncio would have written it into the buffer of which its child has a copy.
            return 0
        try:
            while self.state == OPEN and self.unencrypted.bytes and self.encrypt_oldest():
                pass
            if self.engine.unsent():
                self.engine.take_unsent()
            if stream is not None:
                stream.leave_to_parent()
        except Exception as error:
            self.sending_failed(error)
        return 0

    cdef int send_now(self, bint even_if_paused) except -1:
        """Encrypt what was written and pass it to the transport. While that is paused, only if `even_if_paused`."""
        if self.sending_paused and not even_if_paused:
            return 0
        try:
            if self.state == OPEN or self.state == FLUSHING:
                while self.unencrypted.bytes and self.encrypt_oldest():
                    self.send_full_part()
            self.send_records_unless_paused()
        except Exception as error:
            self.sending_failed(error)
        except BaseException:
            self.send_later()
            raise
        return self.control_app_writing()

    cdef int send_later(self) except -1:
        """After an interrupt, which may end the loop. When it runs on, it sends the rest, whose write() may have
        returned long ago."""
        if not self.loop.closed:
            self.resume_soon()
        return 0

    cdef bint encrypt_oldest(self) except -1:
        """Make one record of the oldest plaintext; false if OpenSSL needs input from the peer first."""
        cdef char joined[MAX_PLAINTEXT]
        cdef const char *data = joined
        cdef Py_ssize_t size, taken
        # The ssl module releases the GIL, and other code may then clear the output: keep the memory alive.
        cdef object owner = <object>write_queue_front(&self.unencrypted, &data, <size_t *>&size)
        if size >= MAX_PLAINTEXT:
            size = MAX_PLAINTEXT
        elif self.unencrypted.count > 1:
            size = write_queue_peek(&self.unencrypted, joined, MAX_PLAINTEXT)
            data = joined
        taken = self.make_record(data, size)
        if taken < 0:
            return False
        write_queue_consume(&self.unencrypted, min(<size_t>taken, self.unencrypted.bytes))
        if self.engine.interruption is not None:
            self.engine.raise_interruption()
        return owner is not None

    cdef Py_ssize_t make_record(self, const char *data, Py_ssize_t size) except -2:
        """Make one record. Returns how many bytes it holds, or -1 if OpenSSL needs input from the peer first."""
        cdef StreamTransport stream = self.stream
        cdef Py_ssize_t taken = self.engine.encrypt_record(data, size)
        # Take each record at once, so that the engine's own buffer stays small.
        if taken < 0 or self.sending_paused or stream is None or stream.lost or stream.sends_file():
            return taken
        self.engine.move_unsent(&stream.unsent)
        return taken

    cdef int send_full_part(self) except -1:
        """Send the records made so far if they are a PART or more and the kernel takes them."""
        cdef StreamTransport stream = self.stream
        if self.sending_paused or stream is None or stream.blocked or stream.lost:
            return 0
        if stream.unsent.bytes < <size_t>PART:
            return 0
        return stream.send_queued()

    cdef int send_records_unless_paused(self) except -1:
        return 0 if self.sending_paused else self.send_records()

    cdef int send_records(self) except -1:
        """Pass the engine's output to the transport, and have it send its queue."""
        # Kept: sending may call the program, which may end this connection and drop the transport.
        cdef StreamTransport stream = self.stream
        if self.transport is None:
            return 0
        if self.engine.unsent():
            if stream is None or stream.lost or stream.sends_file():
                # Then write() raises RuntimeError: no record may come between the parts of a file.
                self.transport.write(self.engine.take_unsent())
                return 0
            self.engine.move_unsent(&stream.unsent)
        if stream is not None and stream.unsent.bytes and not stream.lost:
            stream.send_soon()
        return 0

    cdef int control_app_writing(self) except -1:
        """Pause or resume the application's protocol, which may write again, close, or replace itself."""
        cdef Py_ssize_t waiting = self.unsent_bytes()
        if self.app is None:
            return 0
        if self.app_writing_paused:
            if waiting > self.write_low:
                return 0
            self.app_writing_paused = False
            return call_flow_control(self, "resume_writing")
        # If both limits are equal and reached exactly, the protocol would be paused and resumed at once.
        if waiting < self.write_high or waiting <= self.write_low:
            return 0
        self.app_writing_paused = True
        return call_flow_control(self, "pause_writing")

    cdef Py_ssize_t unsent_bytes(self) except -1:
        """How many bytes were not passed to the transport, because it is paused or the turn has not ended."""
        return self.unencrypted.bytes + (self.engine.unsent() if self.sending_paused else 0)

    cdef bint is_sending(self) except -1:
        """Whether something that was written is on its way still, as far as the transports below are hotloop's."""
        return (
            self.unsent_bytes() > 0
            or (self.stream is not None and self.stream.is_sending())
            or (self.outer is not None and self.outer.is_sending())
        )

    cdef int flush_early(self) except -1:
        """Send this turn's writes now: called before an operation that would show that they have not left, or lose
        them."""
        self.flush_inner()
        if not self.unflushed:
            return 0
        if self.loop.is_inherited_by_fork():
            return self.leave_to_parent()
        return 0 if self.loop.runs_elsewhere() else self.send_now(False)

    cdef int flush_inner(self) except -1:
        """TLS over TLS: have the inner connection pass on what was written to it in this turn."""
        cdef ByteProtocol app
        if self.kind != COMPILED or self.app is None or self.flushing_inner:
            return 0
        self.flushing_inner = True
        try:
            # Kept, as in deliver_compiled().
            app = <ByteProtocol>self.app
            app.flush_early()
        finally:
            self.flushing_inner = False
        return 0

    cdef int flush_if_broken(self) except -1:
        """As StreamTransport's."""
        if self.unflushed and (self.stream is None or not self.stream.may_wait(self.unencrypted.bytes)):
            self.flush_early()
        return 0

    cdef bint is_used_by_program(self) noexcept:
        """Whether the program can use the socket below without calling its transport."""
        if self.stream is not None:
            return self.stream.is_used_by_program()
        return self.outer is not None and self.outer.is_used_by_program()

    cdef int force_close(self, object error) except -1:
        """Close the transport below without writing what is buffered."""
        if self.transport is None:
            return 0
        if force_close_is_broken and isinstance(self.transport, sslproto._SSLProtocolTransport):
            self.transport.abort()
        else:
            self.transport._force_close(error)
        return 0

    cdef int sending_failed(self, object error) except -1:
        # Closing flushes, which would fail again.
        self.unflushed = False
        if self.engine.failure is not None:
            # An invalid record has arrived behind the data that the protocol is being given. OpenSSL encrypts nothing
            # since, and the record's error is reported when the protocol returns.
            return 0
        return self.fatal_error(error, "Fatal error on SSL protocol")

    cdef int fatal_error(self, object error, str message) except -1:
        """Close the connection because of an error, and report it; an OSError only in debug mode."""
        cdef object transport = self.transport
        self.force_close(error)
        if isinstance(error, OSError):
            if self.loop.debug:
                logger.debug("%r: %s", self, message, exc_info=error)
        elif not isinstance(error, exceptions.CancelledError):
            self.loop.call_exception_handler(
                {"message": message, "exception": error, "transport": transport, "protocol": self}
            )
        return 0


cdef int call_flow_control(TlsSender tls, str method) except -1:
    try:
        getattr(tls.app, method)()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        tls.loop.call_exception_handler(
            {
                "message": f"protocol.{method}() failed",
                "exception": error,
                "transport": tls.app_transport,
                "protocol": tls,
            }
        )
    return 0
