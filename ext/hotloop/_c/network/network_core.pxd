from hotloop._c.loop.loop_core cimport LoopCore


cdef class NetworkCore(LoopCore):
    cdef object connected_sockets   # a WeakSet: sockets made by create_connection(); None at first

    cdef bint is_held_by_program(self, object sock, object server) except -1
