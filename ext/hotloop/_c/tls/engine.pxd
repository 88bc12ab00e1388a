from hotloop._c.transports.write_queue cimport write_queue

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
    cdef bint record_partly_read    # the last record was not read to its end
    cdef bint peer_closed           # by close_notify
    cdef object failure             # the exception that decrypting has raised and that is not handled yet, or None
    cdef object interruption        # what was raised although data was decrypted or encrypted, or None

    cdef int adopt(self, object sslobject) except -1
    cdef int release(self) except -1
    cdef bint handshake(self, ciphertext *source) except -1
    cdef bint unwrap(self, ciphertext *source) except -1
    cdef bint attempt(self, object operation, ciphertext *source) except -1
    cdef bint succeeds(self, object operation) except -1
    cdef bint has_data(self) noexcept
    cdef Py_ssize_t waiting(self) noexcept
    cdef int raise_interruption(self) except -1
    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1
    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1
    cdef Py_ssize_t read_by_ssl_module(self, char *place, Py_ssize_t room) except -2
    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2
    cdef Py_ssize_t write_by_ssl_module(self, const char *data, Py_ssize_t size) except -2
    cdef Py_ssize_t unsent(self) except -1
    cdef bytes take_unsent(self)
    cdef int move_unsent(self, write_queue *queue) except -1
    cdef bint may_encrypt_before_fork(self) noexcept
