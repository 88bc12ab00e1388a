"""DirectEngine: TLS by OpenSSL's own functions, on the SSL inside the application's SSLObject.

openssl.h finds the functions and the SSL, and has the BIO. Compared with the ssl module this saves three Python calls
for a record in and two for a record out, and in each direction one pass over the bytes that clears a memory BIO and one
that copies into it.

Only what succeeds is done here. OpenSSL keeps an error until it was read; so after any failure the ssl module's method
is called, which meets the same failure and raises its own exception. Handshakes and close_notify are always its own.

OpenSSL is called with the GIL held. A record takes some microseconds. Another thread that got the GIL meanwhile would
keep it for up to sys.getswitchinterval(), some thousand times longer.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from hotloop._c.runtime.locking cimport FREE_THREADED
from hotloop._c.tls.engine cimport TlsEngine, ciphertext
from hotloop._c.tls.memory_engine cimport MemoryEngine
from hotloop._c.tls.records cimport tls_records, tls_records_next
from hotloop._c.transports.write_queue cimport write_queue, write_queue_append, write_queue_append_data

import os

try:
    import _ssl
    import ssl
except ImportError:
    # Python can be built without ssl. Then there is no SSLContext to make an engine for.
    ssl = None
else:
    WRAP_BIO = ssl.SSLContext.wrap_bio

cdef extern from "tls/openssl.h":
    ctypedef struct openssl_functions:
        int (*read)(void *connection, void *place, size_t room, size_t *count) noexcept
        int (*peek)(void *connection, void *place, size_t room, size_t *count) noexcept
        int (*write)(void *connection, const void *data, size_t size, size_t *taken) noexcept
        int (*pending)(const void *connection) noexcept
        int (*want)(const void *connection) noexcept

    ctypedef struct tls_exchange:
        const char *incoming
        size_t incoming_size
        char *record
        size_t record_size
        char *more
        size_t more_size
        bint out_of_memory

    openssl_functions openssl
    int OPENSSL_WANTS_INPUT
    const char *openssl_find(const char *path, const char *version)
    void openssl_expect()
    void *openssl_of(object)
    tls_exchange *tls_exchange_with(void *connection)
    void tls_exchange_release(tls_exchange *)
    void tls_exchange_lend_record(tls_exchange *, char *record, size_t room)
    void tls_exchange_forget(tls_exchange *)

# What a record is larger than its plaintext, at most, with any cipher in use; more has room in the BIO.
cdef Py_ssize_t RECORD_OVERHEAD = 128


@cython.final
cdef class DirectEngine(TlsEngine):
    cdef void *connection           # OpenSSL's SSL, which `ssl` owns
    cdef tls_exchange *exchange     # what its BIO reads and writes
    cdef tls_records records        # where the record ends of which OpenSSL has read a part
    cdef bytes record               # the memory of exchange.record

    def __dealloc__(self):
        if self.exchange is not NULL:
            tls_exchange_lend_record(self.exchange, NULL, 0)
            tls_exchange_release(self.exchange)

    cdef int check_alive(self) except -1:
        """RuntimeError if there is no SSLObject any more: after release(), or if the garbage collector has cleared this
        engine, and a finalizer has called the transport."""
        if self.ssl is None:
            raise RuntimeError("the TLS connection was finalized")
        return 0

    cdef int check_memory(self) except -1:
        """MemoryError if the BIO had none for what OpenSSL wrote. OpenSSL reports that like a need for input."""
        if self.exchange.out_of_memory:
            self.exchange.out_of_memory = False
            raise MemoryError
        return 0

    cdef int lend(self, ciphertext *source) except -1:
        """Have OpenSSL read from the source until take_back()."""
        self.check_alive()
        self.exchange.incoming = source.data
        self.exchange.incoming_size = source.size
        return 0

    cdef int take_back(self, ciphertext *source) noexcept:
        cdef Py_ssize_t count = source.size - self.exchange.incoming_size
        tls_records_next(&self.records, source.data, count, count)
        source.data += count
        source.size -= count
        self.exchange.incoming = NULL
        self.exchange.incoming_size = 0
        return 0

    cdef bint attempt(self, object operation, ciphertext *source) except -1:
        cdef bint done
        self.lend(source)
        try:
            done = self.succeeds(operation)
        finally:
            self.take_back(source)
        self.check_memory()
        return done

    # -- from the peer -------------------------------------------------------------------------------------------------

    cdef bint begins_with_record(self, ciphertext *source) noexcept:
        """Whether the source has a whole record, or the rest of the one of which OpenSSL has a part."""
        cdef tls_records records = self.records
        tls_records_next(&records, source.data, source.size, 1)
        return source.size > 0 and records.unfinished == 0

    cdef int swallow(self, ciphertext *source) except -1:
        """Have OpenSSL take the part of a record that the source has."""
        cdef char place
        cdef size_t count
        self.lend(source)
        if openssl.peek(self.connection, &place, 1, &count) > 0 or openssl.want(self.connection) != OPENSSL_WANTS_INPUT:
            # It has found a record, or an error, where none was expected: decrypt_into() will see which.
            self.record_partly_read = True
        self.take_back(source)
        return 0

    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1:
        if not self.record_partly_read and source.size and not self.begins_with_record(source):
            self.swallow(source)
        if self.record_partly_read:
            self.check_alive()
            return max(openssl.pending(self.connection), 1) + source.size
        return self.records.unfinished + source.size if source.size else 0

    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1:
        cdef Py_ssize_t total = 0, count, left
        try:
            while total < room and (self.record_partly_read or source.size):
                left = source.size
                count = self.read(place + total, room - total, source)
                if count == 0 and (source.size == left or self.peer_closed or self.failure is not None):
                    break
                total += count
        except BaseException as error:
            if total == 0:
                raise
            self.interruption = error
        return total

    cdef Py_ssize_t read(self, char *place, Py_ssize_t room, ciphertext *source) except -2:
        """Decrypt one record or its next part. Returns how many bytes; 0 may also mean `peer_closed` or `failure`."""
        cdef size_t count
        cdef bint done
        cdef object _owner = self.ssl   # a callback of the program's, of the SSLContext, may end the connection
        self.lend(source)
        done = openssl.read(self.connection, place, room, &count) > 0
        self.take_back(source)
        if done:
            self.record_partly_read = openssl.pending(self.connection) > 0
            return count
        self.record_partly_read = False
        self.check_memory()
        if openssl.want(self.connection) == OPENSSL_WANTS_INPUT:
            return 0
        # Unless it returns, as after an interrupt, the next attempt has to find the same, such as close_notify.
        self.record_partly_read = True
        self.lend(source)
        try:
            return self.read_by_ssl_module(place, room)
        finally:
            self.take_back(source)

    # -- to the peer ---------------------------------------------------------------------------------------------------

    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2:
        cdef size_t taken
        cdef object _owner = self.ssl   # as in read()
        self.check_alive()
        if self.unsent() == 0:
            self.record = PyBytes_FromStringAndSize(NULL, size + RECORD_OVERHEAD)
            tls_exchange_lend_record(self.exchange, PyBytes_AS_STRING(self.record), size + RECORD_OVERHEAD)
        if openssl.write(self.connection, data, size, &taken) > 0:
            return taken
        self.check_memory()
        return self.write_by_ssl_module(data, size)

    cdef Py_ssize_t unsent(self) except -1:
        return self.exchange.record_size + self.exchange.more_size

    cdef bytes take_unsent(self):
        cdef tls_exchange *exchange = self.exchange
        cdef bytes data = PyBytes_FromStringAndSize(NULL, self.unsent())
        if exchange.record_size:
            memcpy(PyBytes_AS_STRING(data), exchange.record, exchange.record_size)
        if exchange.more_size:
            memcpy(PyBytes_AS_STRING(data) + exchange.record_size, exchange.more, exchange.more_size)
        tls_exchange_forget(exchange)
        self.record = None
        return data

    cdef int move_unsent(self, write_queue *queue) except -1:
        if self.exchange.more_size or self.record is None:
            return write_queue_append_data(queue, self.take_unsent())
        if write_queue_append(queue, self.record, self.exchange.record, self.exchange.record_size) < 0:
            raise MemoryError
        tls_exchange_forget(self.exchange)
        self.record = None
        return 0

    cdef bint may_encrypt_before_fork(self) noexcept:
        return True


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname):
    """An engine for one connection: a DirectEngine where that is possible. RuntimeError if there is no ssl module, or
    the errors of context.wrap_bio()."""
    cdef object incoming, outgoing, sslobject
    cdef TlsEngine engine
    cdef void *connection = NULL
    if ssl is None:
        raise RuntimeError("stdlib ssl module not available")
    # What a callback for each message raises, the ssl module's methods raise.
    may_be_direct = why_openssl_is_not_called() is None and getattr(context, "_msg_callback", None) is None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrap_bio = context.wrap_bio
    openssl_expect()
    sslobject = wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=server_hostname)
    # An overridden wrap_bio() may want to see what passes through the BIOs that it was given.
    if may_be_direct and getattr(wrap_bio, "__func__", None) is WRAP_BIO and type(sslobject) is ssl.SSLObject:
        if type(sslobject._sslobj) is _ssl._SSLSocket:
            connection = openssl_of(sslobject._sslobj)
    engine = memory_engine(incoming, outgoing) if connection is NULL else direct_engine(connection)
    engine.adopt(sslobject)
    return engine


cdef TlsEngine memory_engine(object incoming, object outgoing):
    cdef MemoryEngine engine = MemoryEngine.__new__(MemoryEngine)
    engine.incoming = incoming
    engine.outgoing = outgoing
    return engine


cdef TlsEngine direct_engine(void *connection):
    cdef DirectEngine engine = DirectEngine.__new__(DirectEngine)
    engine.connection = connection
    engine.exchange = tls_exchange_with(connection)
    if engine.exchange is NULL:
        raise MemoryError
    return engine


# Set when a call of why_openssl_is_not_called() has found out. Until then other threads must look for themselves.
cdef bint openssl_was_looked_up = False
cdef object reason_against_openssl = None


def why_openssl_is_not_called():
    """None if connections call OpenSSL's functions directly, else the reason in words."""
    global openssl_was_looked_up, reason_against_openssl
    if not openssl_was_looked_up:
        reason_against_openssl = look_up_openssl()
        openssl_was_looked_up = True
    return reason_against_openssl


cdef object look_up_openssl():
    cdef const char *missing
    if os.environ.get("HOTLOOP_TLS") == "ssl":
        return "HOTLOOP_TLS=ssl"
    if FREE_THREADED:
        return "without the GIL, the locks of the ssl module are needed"
    if not ssl.OPENSSL_VERSION.startswith("OpenSSL "):
        return f"the ssl module has {ssl.OPENSSL_VERSION}"
    path = getattr(_ssl, "__file__", None)
    if path is None:
        return "OpenSSL is a part of this Python"
    missing = openssl_find(os.fsencode(path), ssl.OPENSSL_VERSION.encode())
    return None if missing is NULL else f"{missing.decode()} was not found"
