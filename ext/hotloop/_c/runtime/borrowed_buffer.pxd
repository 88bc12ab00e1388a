cdef class BorrowedBuffer:
    cdef char *start
    cdef Py_ssize_t size            # in bytes
    cdef bint readonly


cdef BorrowedBuffer writable_buffer(char *start, Py_ssize_t size)
cdef BorrowedBuffer readable_buffer(const char *start, Py_ssize_t size)
