from hotloop._c.core cimport LoopCore


cdef class NetworkCore(LoopCore):
    pass
