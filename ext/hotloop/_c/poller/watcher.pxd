from hotloop._c.scheduler.ready_queue cimport Runnable


cdef extern from "poller/poller.h":
    enum: POLLER_READ
    enum: POLLER_WRITE
    enum: POLLER_EDGE
    enum: POLLER_MORE


cdef class Watcher(Runnable):
    cdef int happened(self, int events) except -1
    cdef int flush(self) except -1
    cdef object data(self)
    cdef object fileobj(self, int fd)
    cdef bint is_idle(self) noexcept
    cdef int give_way(self) except -1
