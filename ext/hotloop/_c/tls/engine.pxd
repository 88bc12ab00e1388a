cdef extern from "tls/records.h":
    ctypedef struct tls_records:
        size_t unfinished


# The plaintext that one record can hold, in bytes.
cdef enum:
    MAX_PLAINTEXT = 16384


# Ciphertext that has arrived and is not yet given to OpenSSL.
cdef struct ciphertext:
    const char *data
    Py_ssize_t size


cdef class TlsEngine:
    cdef object sslobject           # the SSLObject, the application's "ssl_object"
    cdef object ssl                 # the object that is called: the C object inside the SSLObject, or the latter itself
    cdef bint native                # `ssl` is the C object, which reads into and writes from buffers
    cdef object incoming            # an ssl.MemoryBIO: from the peer
    cdef object outgoing            # an ssl.MemoryBIO: to the peer
    cdef Py_ssize_t pending         # bytes in `incoming`
    cdef tls_records records        # where the records end that were put into `incoming`
    cdef bint record_partly_read    # the last record was not read to its end
    cdef bint peer_closed           # by close_notify
    cdef object failure             # the exception that decrypting has raised and that is not handled yet, or None

    cdef bint handshake(self) except -1
    cdef bint unwrap(self) except -1
    cdef int feed_records(self, ciphertext *source, Py_ssize_t enough) except -1
    cdef bint has_data(self) noexcept
    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1
    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1
    cdef Py_ssize_t decrypt_record(self, char *place, Py_ssize_t room) except -2
    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2
    cdef bytes take_outgoing(self)


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname)
