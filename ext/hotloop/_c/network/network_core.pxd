from hotloop._c.loop.loop_core cimport LoopCore


cdef class NetworkCore(LoopCore):
    cdef object connected           # a WeakSet: sockets that create_connection() has made; None at first

    cdef bint may_be_used(self, object sock, object server) except -1
