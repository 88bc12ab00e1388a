cdef class Window:
    cdef char *start
    cdef Py_ssize_t size            # in bytes
    cdef bint readonly


cdef Window window_on(char *start, Py_ssize_t size)
cdef Window view_of(const char *start, Py_ssize_t size)
