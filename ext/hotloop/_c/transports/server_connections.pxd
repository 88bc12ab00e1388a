cdef int attach(object server, object transport) except -1
cdef int detach(object server, object transport) except -1
