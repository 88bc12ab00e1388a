"""TlsReceiver: decrypts the records that arrive and passes their data to the application's protocol.

All records of one read from the socket become one call of the protocol, or one for each time that they fill its own
buffer. They are decrypted directly into the bytes object, the StreamReader's buffer or the protocol's own buffer. While
the application does not read, data is kept as ciphertext; from a limit on the transport below is paused.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF

from hotloop._c.runtime.byte_arrays cimport byte_array_shorten
from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.runtime.python_api cimport bytes_of_size
from hotloop._c.scheduler.handles cimport copy_context
from hotloop._c.system.receive cimport READ_SIZE
from hotloop._c.tls.engine cimport MAX_PLAINTEXT, ciphertext
from hotloop._c.transports.base cimport as_size
from hotloop._c.transports.protocol_kind cimport BUFFERED, COMPILED, STREAM_READER, ByteProtocol, kind_of
from hotloop._c.transports.reader_feed cimport buffer_to_feed, reader_to_feed, reserve_space, wake_reader

from asyncio import constants, sslproto

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1

# The size of the buffer for transports that call get_buffer(), in bytes.
cdef Py_ssize_t RECEIVE_BUFFER_SIZE = 64 * 1024

# Up to this many bytes are decrypted on the stack and copied, which is cheaper than resizing a bytes object.
cdef enum:
    SMALL = 4096


@cython.no_gc_clear
cdef class TlsReceiver(ByteProtocol):
    """The part of TlsProtocol that reads: see protocol.pyx."""

    cdef int set_app(self, object protocol) except -1:
        cdef object_section section
        # May raise, and then nothing changes.
        cdef ProtocolKind kind = kind_of(protocol)
        # The one before goes last: its finalizer may run the loop.
        cdef object _before = self.app
        section_enter(&section, self)
        self.app = protocol
        section_leave(&section)
        self.kind = kind
        return 0

    cdef int resume_soon(self) except -1:
        """Queue _resume(), which is TlsProtocol's and goes on with whatever waits. In a copy of the context, because a
        callback of the application may run the loop in the context itself."""
        self.loop.schedule_call(self._resume, (), copy_context(self.context))
        return 0

    cdef int set_read_limits(self, object high, object low) except -1:
        high, low = sslproto.add_flowcontrol_defaults(high, low, constants.FLOW_CONTROL_HIGH_WATER_SSL_READ)
        self.read_high = as_size(high)
        self.read_low = as_size(low)
        # Other threads may be reading them.
        limits = (low, high)
        with cython.critical_section(self):
            self.read_limits, limits = limits, self.read_limits
        return 0

    def get_buffer(self, sizehint):
        """For a transport that cannot call bytes_received(). See asyncio.BufferedProtocol."""
        if self.receive_buffer is None:
            self.receive_buffer = bytearray(RECEIVE_BUFFER_SIZE)
        return self.receive_buffer

    def buffer_updated(self, nbytes):
        """`nbytes` bytes are in the buffer of get_buffer()."""
        cdef bytes data = bytes(self.receive_buffer[:nbytes])
        self.bytes_received(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef bint wants_data(self) noexcept:
        return self.receiving and (self.discarding or not self.app_reading_paused) and not self.engine.peer_closed

    cdef bint has_unread(self) noexcept:
        """Whether something has arrived that the application has not got, even if only a part of a record."""
        return not self.engine.peer_closed and (self.held is not None or self.engine.has_data())

    cdef int hold(self, const char *data, Py_ssize_t size) except -1:
        """Append ciphertext to `held`."""
        cdef bytes more
        if size == 0:
            return 0
        more = PyBytes_FromStringAndSize(data, size)
        self.held = more if self.held is None else self.held[self.held_at:] + more
        self.held_at = 0
        return 0

    cdef int find_held(self, ciphertext *source, bytes owner) noexcept:
        """Point the source at what waits in `owner`, the held object, which the caller keeps alive; at nothing if that
        is None."""
        # It is not returned, because a coverage build would make a bytes object of the pointer.
        source.data = NULL
        source.size = 0
        if owner is not None:
            source.data = PyBytes_AS_STRING(owner) + self.held_at
            source.size = PyBytes_GET_SIZE(owner) - self.held_at
        return 0

    cdef int hold_rest(self, ciphertext *source, bytes owner) except -1:
        """Hold what is left of the source before other code is called, which may reuse the buffer. `owner` is the held
        object in which the source lies, or None for a buffer."""
        if source.size == 0:
            self.held = None
        elif owner is None:
            self.hold(source.data, source.size)
        else:
            self.held_at = PyBytes_GET_SIZE(owner) - source.size
        return 0

    cdef bint deliver(self, ciphertext *source, bytes owner) except -1:
        """Decrypt, and call the protocol if there is data. False if there is nothing more to decrypt now, or if the
        engine has a `failure` or `peer_closed`, which the caller handles."""
        cdef object reader = None
        cdef Py_ssize_t room = self.engine.max_plaintext(source), count
        if room == 0:
            self.hold_rest(source, owner)
            return False
        if self.discarding:
            count = self.decrypt_and_discard(source, owner)
        elif self.kind == BUFFERED:
            count = self.deliver_to_buffer(room, source, owner)
        elif self.kind == COMPILED:
            count = self.deliver_compiled(source, owner)
        else:
            if self.kind == STREAM_READER:
                reader = reader_to_feed(self.app)
            if reader is not None:
                count = self.deliver_to_reader(reader, min(room, READ_SIZE), source, owner)
            elif room <= SMALL:
                count = self.deliver_small(room, source, owner)
            else:
                count = self.deliver_bytes(room, source, owner)
        if self.engine.interruption is not None:
            # Now, because the application may want no more, or have ended the connection.
            self.engine.raise_interruption()
        return count > 0 and self.engine.failure is None and not self.engine.peer_closed and not self.rest_queued

    cdef Py_ssize_t decrypt(self, char *place, Py_ssize_t room, ciphertext *source, bytes owner) except -1:
        """Decrypt up to `room` bytes, and hold what is left of the source."""
        try:
            return self.engine.decrypt_into(place, room, source)
        finally:
            # After an interrupt, too: the loop may run again, and what OpenSSL has taken must not come twice.
            self.hold_rest(source, owner)

    cdef Py_ssize_t deliver_small(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1:
        cdef char place[SMALL]
        cdef Py_ssize_t count = self.decrypt(place, room, source, owner)
        if count:
            self.app.data_received(PyBytes_FromStringAndSize(place, count))
        return count

    cdef Py_ssize_t deliver_bytes(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1:
        cdef Py_ssize_t count
        cdef PyObject *data = bytes_of_size(NULL, room)
        try:
            count = self.decrypt(PyBytes_AS_STRING(<object>data), room, source, owner)
            if count < room:
                _PyBytes_Resize(&data, count)
            if count:
                self.app.data_received(<object>data)
        finally:
            Py_XDECREF(data)
        return count

    cdef Py_ssize_t deliver_to_reader(
        self, object reader, Py_ssize_t room, ciphertext *source, bytes owner
    ) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t count = 0
        cdef object buffer = buffer_to_feed(reader)
        cdef char *place = reserve_space(buffer, room)
        # The ssl module's calls release the GIL, and run callbacks of the program's. An exported buffer cannot be
        # moved meanwhile, but the reader may get another one.
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            count = self.decrypt(place, room, source, owner)
        finally:
            PyBuffer_Release(&view)
            byte_array_shorten(buffer, PyByteArray_GET_SIZE(buffer) - (room - count))
        if count:
            wake_reader(reader)
        return count

    cdef Py_ssize_t deliver_to_buffer(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t count
        cdef bint is_full
        cdef object app = self.app
        # In get_buffer() the protocol may close the transport, and other code may use the loop's buffer.
        self.hold_rest(source, owner)
        buffer = app.get_buffer(room)
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        if self.discarding or not self.wants_data():
            return 0
        try:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        except (BufferError, TypeError):
            # The ssl module's words.
            raise TypeError(
                f"read() argument 2 must be read-write bytes-like object, not {type(buffer).__name__}"
            ) from None
        try:
            # Since 3.12 it may be a Python object whose methods were called, too.
            if self.discarding or not self.wants_data():
                return 0
            if self.app is not app:
                # Another protocol was set, which may take data in another way: the caller tries again.
                return 1
            owner = self.held
            self.find_held(source, owner)
            count = self.decrypt(<char *>view.buf, view.len, source, owner)
            is_full = count == view.len
        finally:
            PyBuffer_Release(&view)
        if is_full and not self.at_end and self.has_unread():
            # As in asyncio, the next piece has a turn of its own: what the protocol does with this one takes effect.
            self.resume_soon()
            self.rest_queued = True
        if count:
            # As in asyncio, also if the release of the buffer has ended the connection.
            (app if self.app is None else self.app).buffer_updated(count)
        return count

    cdef Py_ssize_t deliver_compiled(self, ciphertext *source, bytes owner) except -1:
        # TLS over TLS. The loop's buffer cannot be used, because the source may lie in it.
        cdef char place[MAX_PLAINTEXT]
        cdef ByteProtocol app
        cdef Py_ssize_t count = self.decrypt(place, MAX_PLAINTEXT, source, owner)
        if count:
            # Kept, because the application may set another protocol here, and drop this one.
            app = <ByteProtocol>self.app
            app.bytes_received(place, count)
        return count

    cdef Py_ssize_t decrypt_and_discard(self, ciphertext *source, bytes owner) except -1:
        cdef char nowhere[MAX_PLAINTEXT]
        return self.decrypt(nowhere, MAX_PLAINTEXT, source, owner)

    cdef Py_ssize_t unread_bytes(self) noexcept:
        """How many bytes of ciphertext, in whole records, wait for the application."""
        cdef Py_ssize_t waiting = self.engine.waiting()
        if self.held is not None:
            waiting += PyBytes_GET_SIZE(self.held) - self.held_at
        return waiting

    cdef int control_receiving(self) except -1:
        """Pause or resume the transport below according to the read limits."""
        cdef Py_ssize_t waiting = self.unread_bytes()
        if self.transport is None:
            return 0
        if self.receiving_paused:
            if waiting <= self.read_low:
                self.transport.resume_reading()
                self.receiving_paused = False
        elif waiting and waiting >= self.read_high:
            self.transport.pause_reading()
            self.receiving_paused = True
        return 0
