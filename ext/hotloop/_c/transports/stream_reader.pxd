cdef bint is_fed_directly(object protocol) except -1
cdef object can_feed(object protocol)
cdef char *extend(object reader, Py_ssize_t size) except NULL
cdef int take_back(object reader, Py_ssize_t size) except -1
cdef int fed(object reader) except -1
