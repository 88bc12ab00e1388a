cdef bint is_stream_reader_protocol(object protocol) except -1
cdef object reader_to_feed(object protocol)
cdef char *reserve_space(object reader, Py_ssize_t size) except NULL
cdef int return_space(object reader, Py_ssize_t size) except -1
cdef int wake_reader(object reader) except -1
