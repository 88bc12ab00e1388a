cdef bint socket_class_is_patched() except -1
cdef object socket_object_type(object sock)
cdef object socket_object_protocol(object sock)
