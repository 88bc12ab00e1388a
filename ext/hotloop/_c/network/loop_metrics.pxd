from hotloop._c.loop.loop_core cimport LoopCore


cdef dict collect_metrics(LoopCore loop)
cdef dict count_watched(LoopCore loop)
