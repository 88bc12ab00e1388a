"""TlsEngine: OpenSSL, by way of the ssl module's own objects, between plaintext and ciphertext in memory.

The context is the user's, the SSLObject is what he sees as `ssl_object`, and OpenSSL is the one that Python was built
with. The C object inside the SSLObject is called directly, which saves a Python call for each record in and out.

Of the two ways there are, memory on both sides is taken, in both directions: one SSLObject cannot mix them. With
OpenSSL on the descriptor itself an echo of 64 KiB is 8 read() and 4 write() (it reads a record's head and body apart,
and sends each record), here one recv() and one sendmsg(); of 1 KiB, 2 and 1 against 1 and 1. Processor time, CPython
3.13 and OpenSSL 3.0: 43 us against 47 for 64 KiB, where it saves copies, 4.4 us either way for 1 KiB; and not counted
there is the read() in vain, an exception, by which alone it learns that it has read all. Nor could it gather the writes
of a turn, begin after bytes were read (start_tls()), or run over another transport.

OpenSSL's buffers in memory grow and never shrink. So they are given no more at a time than about one record, and each
is emptied before the next: they stay under 24 KiB each whatever passes through.

Source: the ssl module's documentation, "Memory BIO Support"; SSL_read(3), SSL_write(3), SSL_shutdown(3).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from hotloop._c.runtime.borrowed_buffer cimport readable_buffer, writable_buffer

try:
    import ssl
except ImportError:
    # Python can be built without. Then nobody has a context to make an engine for.
    ssl = None

cdef extern from "tls/records.h":
    size_t tls_records_next(tls_records *, const char *data, size_t size, size_t enough)

cdef object SSLError, SSLZeroReturnError
# It has to be fed, or emptied, before it can go on.
cdef tuple NOT_NOW
if ssl is not None:
    SSLError = ssl.SSLError
    SSLZeroReturnError = ssl.SSLZeroReturnError
    NOT_NOW = (ssl.SSLWantReadError, ssl.SSLSyscallError)

# Small records go to OpenSSL together, as many as make this many bytes.
cdef Py_ssize_t FEED = 2048


@cython.final
cdef class TlsEngine:
    cdef bint handshake(self) except -1:
        """Go on with the handshake: true when it is done. SSLError."""
        try:
            self.sslobject.do_handshake()
        except NOT_NOW:
            return False
        finally:
            self.pending = self.incoming.pending
        return True

    cdef bint unwrap(self) except -1:
        """Tell the peer that nothing more will come: true when he has done so too. SSLError."""
        try:
            self.sslobject.unwrap()
        except NOT_NOW:
            return False
        finally:
            self.pending = self.incoming.pending
        return True

    # -- from the peer -------------------------------------------------------------------------------------------------

    cdef int feed(self, arrived *source, Py_ssize_t enough) except -1:
        """Give OpenSSL the next records, up to the first that ends after `enough` bytes."""
        cdef Py_ssize_t size = tls_records_next(&self.records, source.data, source.size, enough)
        self.incoming.write(readable_buffer(source.data, size))
        self.pending += size
        source.data += size
        source.size -= size
        return 0

    cdef bint has_data(self) noexcept:
        """Whether decrypt() is worth trying."""
        return self.more or self.pending > <Py_ssize_t>self.records.unfinished

    cdef Py_ssize_t most_plaintext(self, arrived *source) except -1:
        """How many bytes fill() may bring; 0 if there is not a whole record yet, but then the source is used up."""
        while not self.has_data():
            if source.size == 0:
                return 0
            self.feed(source, FEED)
        return self.pending + source.size + (<Py_ssize_t>self.ssl.pending() if self.more else 0)

    cdef Py_ssize_t fill(self, char *place, Py_ssize_t room, arrived *source) except -1:
        """Decrypt until there is no more room, or no more to decrypt; how many bytes.

        The end that the peer has announced, or a failure, ends it too: `peer_closed`, `failure`."""
        cdef Py_ssize_t total = 0, count
        while total < room:
            if self.has_data():
                count = self.decrypt(place + total, room - total)
                if count > 0:
                    total += count
                    continue
                if self.peer_closed or self.failure is not None:
                    break
            if source.size == 0:
                break
            self.feed(source, FEED)
        return total

    cdef Py_ssize_t decrypt(self, char *place, Py_ssize_t room) except -2:
        """What one record holds, or its next part; how many bytes."""
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
            # What a read returns as its end before close_notify was sent, it raises afterwards.
            self.peer_closed = True
        except SSLError as error:
            self.failure = error
        self.more = count == room and <bint>self.ssl.pending()
        self.pending = self.incoming.pending
        return count

    # -- to the peer ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t encrypt(self, const char *data, Py_ssize_t size) except -2:
        """One record: how many bytes it has taken, or -1 while the peer has to say something first. SSLError."""
        try:
            return self.ssl.write(readable_buffer(data, size) if self.native else PyBytes_FromStringAndSize(data, size))
        except NOT_NOW:
            return -1

    cdef bytes sealed(self):
        """What is to be sent to the peer now."""
        return self.outgoing.read()


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname):
    """RuntimeError if there is no ssl module, or what the context raises."""
    cdef TlsEngine engine = TlsEngine.__new__(TlsEngine)
    if ssl is None:
        raise RuntimeError("stdlib ssl module not available")
    engine.incoming = ssl.MemoryBIO()
    engine.outgoing = ssl.MemoryBIO()
    engine.sslobject = engine.ssl = context.wrap_bio(
        engine.incoming, engine.outgoing, server_side=server_side, server_hostname=server_hostname
    )
    # A subclass may have its own read() and write().
    if type(engine.sslobject) is ssl.SSLObject:
        inside = getattr(engine.sslobject, "_sslobj", None)
        if inside is not None:
            engine.ssl = inside
            engine.native = True
    return engine
