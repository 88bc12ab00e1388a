"""TlsEngine: encrypts and decrypts in memory, by the ssl module's own objects.

The SSLContext is the application's, the SSLObject is its "ssl_object", and OpenSSL is the one that Python was built
with. The engine calls the C object inside the SSLObject directly, which saves a Python call for each record in and out.

OpenSSL can work on the descriptor or on buffers in memory (memory BIOs); one SSLObject cannot mix them. The engine uses
memory. With OpenSSL on the descriptor an echo of 64 KiB is 8 read() and 4 write(), because OpenSSL reads a record's
head and body apart and sends each record; here it is one recv() and one sendmsg(). For 1 KiB, it is 2 and 1 against 1
and 1. Processor time, CPython 3.13 and OpenSSL 3.0: for 64 KiB 43 us on the descriptor, which saves copies, against 47
here; for 1 KiB 4.4 us either way. That does not count the last read() on the descriptor, which finds nothing and raises
an exception, and is the only way to learn that everything was read. Nor could OpenSSL on the descriptor gather the
writes of a turn, begin after bytes were read (start_tls()), or run over another transport.

OpenSSL's buffers in memory grow and never shrink. So the engine gives them no more than about one record at a time and
empties them before the next one: each stays under 24 KiB however much passes through.

Source: the ssl module's documentation, "Memory BIO Support"; SSL_read(3), SSL_write(3), SSL_shutdown(3).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from hotloop._c.runtime.borrowed_buffer cimport readable_buffer, writable_buffer

try:
    import ssl
except ImportError:
    # Python can be built without ssl. Then there is no SSLContext to make an engine for.
    ssl = None

cdef extern from "tls/records.h":
    size_t tls_records_next(tls_records *, const char *data, size_t size, size_t enough)

cdef object SSLError, SSLZeroReturnError
# Exceptions by which OpenSSL asks for more input, or for its output to be taken, before it can continue.
cdef tuple NOT_NOW
if ssl is not None:
    SSLError = ssl.SSLError
    SSLZeroReturnError = ssl.SSLZeroReturnError
    NOT_NOW = (ssl.SSLWantReadError, ssl.SSLSyscallError)

# Small records are given to OpenSSL together, up to the first that ends at this many bytes or more.
cdef Py_ssize_t FEED_AT_LEAST = 2048


@cython.final
cdef class TlsEngine:
    cdef bint handshake(self) except -1:
        """Continue the handshake; true when it is done. SSLError."""
        try:
            self.sslobject.do_handshake()
        except NOT_NOW:
            return False
        finally:
            self.pending = self.incoming.pending
        return True

    cdef bint unwrap(self) except -1:
        """Send close_notify, the first time; true if the peer's has arrived. SSLError."""
        try:
            self.sslobject.unwrap()
        except NOT_NOW:
            return False
        finally:
            self.pending = self.incoming.pending
        return True

    # -- from the peer -------------------------------------------------------------------------------------------------

    cdef int feed_records(self, ciphertext *source, Py_ssize_t enough) except -1:
        """Give OpenSSL the next records, up to the first that ends at `enough` bytes or more."""
        cdef Py_ssize_t size = tls_records_next(&self.records, source.data, source.size, enough)
        self.incoming.write(readable_buffer(source.data, size))
        self.pending += size
        source.data += size
        source.size -= size
        return 0

    cdef bint has_data(self) noexcept:
        """Whether OpenSSL has a whole record, or the rest of one, to decrypt."""
        return self.record_partly_read or self.pending > <Py_ssize_t>self.records.unfinished

    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1:
        """The most bytes that decrypt_into() can return. 0 if there is no whole record yet; then the source is used
        up."""
        while not self.has_data():
            if source.size == 0:
                return 0
            self.feed_records(source, FEED_AT_LEAST)
        return self.pending + source.size + (<Py_ssize_t>self.ssl.pending() if self.record_partly_read else 0)

    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1:
        """Decrypt until `place` is full, the source is used up, or the peer's close_notify (`peer_closed`) or a
        `failure` ends it. Returns how many bytes."""
        cdef Py_ssize_t total = 0, count
        while total < room:
            if self.has_data():
                count = self.decrypt_record(place + total, room - total)
                if count > 0:
                    total += count
                    continue
                if self.peer_closed or self.failure is not None:
                    break
            if source.size == 0:
                break
            self.feed_records(source, FEED_AT_LEAST)
        return total

    cdef Py_ssize_t decrypt_record(self, char *place, Py_ssize_t room) except -2:
        """Decrypt one record or its next part. Returns how many bytes; 0 may also mean `peer_closed` or `failure`."""
        cdef Py_ssize_t count = 0
        cdef object data
        try:
            if self.native:
                count = self.ssl.read(room, writable_buffer(place, room))
            else:
                data = self.ssl.read(room)
                count = PyBytes_GET_SIZE(data)
                memcpy(place, PyBytes_AS_STRING(data), count)
            self.peer_closed = count == 0
        except NOT_NOW:
            pass
        except SSLZeroReturnError:
            # At the peer's close_notify a read returns nothing; once this side has sent its own, it raises this.
            self.peer_closed = True
        except SSLError as error:
            self.failure = error
        self.record_partly_read = count == room and <bint>self.ssl.pending()
        self.pending = self.incoming.pending
        return count

    # -- to the peer ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2:
        """Make one record. Returns how many bytes it holds, or -1 if OpenSSL needs input from the peer first.
        SSLError."""
        try:
            return self.ssl.write(readable_buffer(data, size) if self.native else PyBytes_FromStringAndSize(data, size))
        except NOT_NOW:
            return -1

    cdef bytes take_outgoing(self):
        """Take the ciphertext that is to be sent to the peer."""
        return self.outgoing.read()


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname):
    """An engine for one connection. RuntimeError if there is no ssl module, or the errors of context.wrap_bio()."""
    cdef TlsEngine engine = TlsEngine.__new__(TlsEngine)
    if ssl is None:
        raise RuntimeError("stdlib ssl module not available")
    engine.incoming = ssl.MemoryBIO()
    engine.outgoing = ssl.MemoryBIO()
    engine.sslobject = engine.ssl = context.wrap_bio(
        engine.incoming, engine.outgoing, server_side=server_side, server_hostname=server_hostname
    )
    # A subclass may override read() and write().
    if type(engine.sslobject) is ssl.SSLObject:
        inside = getattr(engine.sslobject, "_sslobj", None)
        if inside is not None:
            engine.ssl = inside
            engine.native = True
    return engine
