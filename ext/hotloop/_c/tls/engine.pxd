cdef extern from "tls/records.h":
    ctypedef struct tls_records:
        size_t unfinished


# The most plaintext that fits into a record, in bytes.
cdef enum:
    MOST_PLAINTEXT = 16384


# Ciphertext yet to be decrypted.
cdef struct arrived:
    const char *data
    Py_ssize_t size


cdef class TlsEngine:
    cdef object sslobject           # what the application sees as its ssl_object
    cdef object ssl                 # what is called: the C object inside, or the same
    cdef bint native                # the former: it takes windows
    cdef object incoming            # an ssl.MemoryBIO: from the peer
    cdef object outgoing            # an ssl.MemoryBIO: to the peer
    cdef Py_ssize_t pending         # bytes in `incoming`
    cdef tls_records records        # in what was put into `incoming`
    cdef bint more                  # the last record was not read to its end
    cdef bint peer_closed           # by close_notify
    cdef object failure             # what OpenSSL has raised when it was to decrypt, or None

    cdef bint handshake(self) except -1
    cdef bint unwrap(self) except -1
    cdef int feed(self, arrived *source, Py_ssize_t enough) except -1
    cdef bint has_data(self) noexcept
    cdef Py_ssize_t most_plaintext(self, arrived *source) except -1
    cdef Py_ssize_t fill(self, char *place, Py_ssize_t room, arrived *source) except -1
    cdef Py_ssize_t decrypt(self, char *place, Py_ssize_t room) except -2
    cdef Py_ssize_t encrypt(self, const char *data, Py_ssize_t size) except -2
    cdef bytes sealed(self)


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname)
