from hotloop._c.tls.engine cimport TlsEngine, ciphertext
from hotloop._c.tls.records cimport tls_records

cdef extern from "tls/openssl.h":
    ctypedef struct tls_exchange:
        const char *incoming
        size_t incoming_size
        char *record
        size_t record_size
        char *more
        size_t more_size
        bint out_of_memory


cdef class DirectEngine(TlsEngine):
    cdef void *connection           # OpenSSL's SSL, which `ssl` owns
    cdef tls_exchange *exchange     # what its BIO reads and writes
    cdef tls_records records        # where the record ends of which OpenSSL has read a part
    cdef bytes record               # the memory of exchange.record

    cdef int check_alive(self) except -1
    cdef int check_memory(self) except -1
    cdef int lend(self, ciphertext *source) except -1
    cdef int take_back(self, ciphertext *source) noexcept
    cdef bint begins_with_record(self, ciphertext *source) noexcept
    cdef int swallow(self, ciphertext *source) except -1
    cdef Py_ssize_t read(self, char *place, Py_ssize_t room, ciphertext *source) except -2


cdef TlsEngine new_engine(object context, bint server_side, object server_hostname)
