cdef bint socket_class_is_patched() except -1
cdef object plain_type(object sock)
cdef object plain_protocol(object sock)
