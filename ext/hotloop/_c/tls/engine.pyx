"""TlsEngine: encrypts and decrypts in memory. It knows neither loop nor transport nor protocol.

The SSLContext is the application's, the SSLObject is its "ssl_object", and OpenSSL is the one that Python was built
with. There are two engines, and new_engine() (direct_engine) chooses:

    DirectEngine    calls OpenSSL's functions itself, where it can find them
    MemoryEngine    has everything done by the ssl module's objects

OpenSSL can work on the descriptor or on buffers in memory; one SSLObject cannot mix them. Both engines use memory. With
OpenSSL on the descriptor an echo of 64 KiB is 8 read() and 4 write(), because OpenSSL reads a record's head and body
apart and sends each record; in memory it is one recv() and one sendmsg(). Nor could OpenSSL on the descriptor gather
the writes of a turn, begin after bytes were read (start_tls()), or run over another transport.

Source: the ssl module's documentation, "Memory BIO Support"; SSL_read(3), SSL_write(3), SSL_shutdown(3).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from hotloop._c.runtime.borrowed_buffer cimport readable_buffer, writable_buffer
from hotloop._c.transports.write_queue cimport write_queue, write_queue_append_data

try:
    import ssl
except ImportError:
    # Python can be built without ssl. Then there is no SSLContext to make an engine for.
    ssl = None

cdef object SSLError, SSLZeroReturnError
# Exceptions by which OpenSSL asks for more input, or for its output to be taken, before it can continue.
cdef tuple NOT_NOW
if ssl is not None:
    SSLError = ssl.SSLError
    SSLZeroReturnError = ssl.SSLZeroReturnError
    NOT_NOW = (ssl.SSLWantReadError, ssl.SSLSyscallError)


cdef class TlsEngine:
    cdef int adopt(self, object sslobject) except -1:
        """Take the new connection's SSLObject."""
        self.sslobject = self.ssl = sslobject
        # A subclass may override read() and write().
        if type(sslobject) is ssl.SSLObject:
            inside = getattr(sslobject, "_sslobj", None)
            if inside is not None:
                self.ssl = inside
                self.native = True
        return 0

    cdef int release(self) except -1:
        """Let go of the SSLObject, and so of the SSLContext. Nothing is encrypted or decrypted any more."""
        self.sslobject = self.ssl = None
        return 0

    cdef bint handshake(self, ciphertext *source) except -1:
        """Continue the handshake with what has arrived; true when it is done. SSLError."""
        return self.attempt(self.ssl.do_handshake, source)

    cdef bint unwrap(self, ciphertext *source) except -1:
        """Send close_notify, the first time; true if the peer's is among what has arrived. SSLError."""
        return self.attempt(self.ssl.shutdown if self.native else self.ssl.unwrap, source)

    cdef bint attempt(self, object operation, ciphertext *source) except -1:
        """Call a method of `ssl` until it succeeds, which is true, or the source is used up."""
        raise NotImplementedError

    cdef bint succeeds(self, object operation) except -1:
        """Call a method of `ssl`. False if it needs more from the peer."""
        try:
            operation()
        except NOT_NOW:
            return False
        return True

    # -- from the peer -------------------------------------------------------------------------------------------------

    cdef bint has_data(self) noexcept:
        """Whether OpenSSL has a whole record, or the rest of one, to decrypt."""
        return self.record_partly_read

    cdef Py_ssize_t waiting(self) noexcept:
        """How many bytes of ciphertext, in whole records, the engine has taken and not decrypted yet."""
        return 0

    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1:
        """The most bytes that decrypt_into() can return. 0 if there is no whole record yet; then the source is used
        up."""
        raise NotImplementedError

    cdef int raise_interruption(self) except -1:
        """Raise what interrupted decrypt_into() when it had plaintext to return, once that is delivered, or
        encrypt_record() when OpenSSL had taken the data."""
        cdef object error = self.interruption
        self.interruption = None
        if error is not None:
            raise error
        return 0

    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1:
        """Decrypt until `place` is full, the source is used up, or the peer's close_notify (`peer_closed`), a `failure`
        or an `interruption` ends it. Returns how many bytes."""
        raise NotImplementedError

    cdef Py_ssize_t read_by_ssl_module(self, char *place, Py_ssize_t room) except -2:
        """Decrypt one record or its next part. Returns how many bytes; 0 may also mean `peer_closed` or `failure`."""
        cdef Py_ssize_t count = 0
        try:
            if self.native:
                count = self.ssl.read(room, writable_buffer(place, room))
            else:
                count = copy_into(place, room, self.ssl.read(room))
            self.peer_closed = count == 0
        except NOT_NOW:
            pass
        except SSLZeroReturnError:
            # At the peer's close_notify a read returns nothing; once this side has sent its own, it raises this.
            self.peer_closed = True
        except SSLError as error:
            # A protocol that calls close() while the first one waits to be handled has OpenSSL fail once more.
            if self.failure is None:
                self.failure = error
        self.record_partly_read = count == room
        if self.record_partly_read:
            try:
                self.record_partly_read = self.ssl.pending()
            except BaseException as error:
                # A program's SSLObject, or an interrupt in it. What was read comes first, and fills the room.
                self.interruption = error
        return count

    # -- to the peer ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2:
        """Make one record. Returns how many bytes it holds, or -1 if OpenSSL needs input from the peer first.
        SSLError."""
        raise NotImplementedError

    cdef Py_ssize_t write_by_ssl_module(self, const char *data, Py_ssize_t size) except -2:
        cdef object given = readable_buffer(data, size) if self.native else PyBytes_FromStringAndSize(data, size)
        cdef Py_ssize_t taken
        try:
            taken = self.ssl.write(given)
        except NOT_NOW:
            return -1
        # The write() of a program's SSLObject may return anything.
        return min(taken, size) if taken > 0 else -1

    cdef Py_ssize_t unsent(self) except -1:
        """How many bytes of ciphertext are to be sent to the peer."""
        raise NotImplementedError

    cdef bytes take_unsent(self):
        """Take the ciphertext that is to be sent to the peer."""
        raise NotImplementedError

    cdef int move_unsent(self, write_queue *queue) except -1:
        """Move the ciphertext that is to be sent to the peer to the end of a queue."""
        return write_queue_append_data(queue, self.take_unsent())

    cdef bint may_encrypt_before_fork(self) noexcept:
        """Whether encrypt_record() and move_unsent() neither run Python code nor release the GIL if OpenSSL takes the
        data."""
        return False


cdef Py_ssize_t copy_into(char *place, Py_ssize_t room, object data) except -1:
    """Copy what the read() of a program's SSLObject has returned, which may be anything. Returns how many bytes."""
    cdef Py_buffer view
    if not data:
        return 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > room:
            raise ValueError(f"read() returned {view.len} bytes, more than the {room} that it was asked for")
        memcpy(place, view.buf, view.len)
        return view.len
    finally:
        PyBuffer_Release(&view)
