from hotloop._c.loop.loop_core cimport LoopCore


cdef bint is_literal(object loop, object host, object port) except -1
cdef object connect(LoopCore loop, object sock, object address)
