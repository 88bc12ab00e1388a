from hotloop._c.loop.loop_core cimport LoopCore


cdef int accept_connections(LoopCore loop, object sock, int backlog, object context, tuple arguments) except -1
cdef bint can_accept(object sock) except -1
