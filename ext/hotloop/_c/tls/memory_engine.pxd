from hotloop._c.tls.engine cimport TlsEngine, ciphertext
from hotloop._c.tls.records cimport tls_records


cdef class MemoryEngine(TlsEngine):
    cdef object incoming            # an ssl.MemoryBIO: from the peer
    cdef object outgoing            # an ssl.MemoryBIO: to the peer
    cdef Py_ssize_t pending         # bytes in `incoming`
    cdef tls_records records        # where the records end that were put into `incoming`

    cdef int feed_records(self, ciphertext *source, Py_ssize_t enough) except -1
