from hotloop._c.scheduler.ready_queue cimport Runnable


cdef extern from "poller/poller.h":
    enum: POLLER_READ
    enum: POLLER_WRITE
    enum: POLLER_EDGE
    enum: POLLER_MORE


cdef class Watcher(Runnable):
    cdef int on_events(self, int events) except -1
    cdef int flush(self) except -1
    cdef int send_early(self) noexcept
    cdef int leave_to_parent(self) except -1
    cdef object data(self)
    cdef object fileobj(self, int fd)
    cdef bint is_idle(self) noexcept
    cdef bint waits_for(self, object sock) except -1
    cdef int yield_to_callback(self) except -1
