cdef bint is_stream_reader_protocol(object protocol) except -1
cdef object reader_to_feed(object protocol)
cdef object buffer_to_feed(object reader)
cdef char *reserve_space(object buffer, Py_ssize_t size) except NULL
cdef int return_space(object buffer, Py_ssize_t size) except -1
cdef int wake_reader(object reader) except -1
