from hotloop._c.scheduler.ready_queue cimport ReadyQueue


cdef class ReadyDeque(ReadyQueue):
    cdef int replace(self, object handles, Py_ssize_t known) except -1
    cdef object apply(self, str name, tuple arguments)
