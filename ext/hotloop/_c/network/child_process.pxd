from hotloop._c.loop.loop_core cimport LoopCore


cdef int watch_process(LoopCore loop, object transport) except -1
cdef bint program_set_child_watcher() except -1
