from hotloop._c.loop.loop_core cimport LoopCore


cdef class NetworkCore(LoopCore):
    cdef object connected_socket    # a weak reference to create_connection()'s latest, until that has a transport

    cdef bint has_native_transport_for(self, object sock) except -1
    cdef bint is_held_by_program(self, object sock, object server) except -1
