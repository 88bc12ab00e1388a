cdef bint is_fed_directly(object protocol) except -1
cdef object can_feed(object protocol)
cdef int feed(object protocol, object reader, const char *data, Py_ssize_t size) except -1
