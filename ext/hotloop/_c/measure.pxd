from hotloop._c.core cimport LoopCore


cdef dict measure(LoopCore loop)
cdef dict watched(LoopCore loop)
