"""records.h: where TLS records end in the bytes that arrive."""

cdef extern from "tls/records.h":
    ctypedef struct tls_records:
        size_t unfinished

    size_t tls_records_next(tls_records *, const char *data, size_t size, size_t enough)
