cdef int attach_to_server(object server, object transport) except -1
cdef int detach_from_server(object server, object transport) except -1
