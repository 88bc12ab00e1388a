from hotloop._c.loop.loop_core cimport LoopCore


cdef class NetworkCore(LoopCore):
    cdef object connected           # a WeakSet: sockets made by create_connection(); None at first

    cdef bint may_be_used(self, object sock, object server) except -1
