from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.future_core cimport FutureCore


cdef class Future(FutureCore):
    pass


cdef Future new_future(object loop, ReadyQueue queue)
