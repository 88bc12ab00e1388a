cdef bint socket_class_is_patched() except -1
