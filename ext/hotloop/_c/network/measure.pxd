from hotloop._c.loop.loop_core cimport LoopCore


cdef dict measure(LoopCore loop)
cdef dict watched(LoopCore loop)
