cimport cython

from hotloop._c.runtime.locking cimport inbox_lock, shared_flag
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue


@cython.final
cdef class Inbox:
    cdef list handles
    cdef inbox_lock lock            # guards the fields, and keeps the poller open while a thread wakes it
    cdef shared_flag filled         # set after a handle was put in, cleared before they are taken out
    cdef unsigned long owner        # the thread that runs the loop, ran it last, or created it
    cdef bint closed                # the loop is closed: post() raises

    cdef int claim(self) noexcept
    cdef bint is_owner(self) noexcept
    cdef int set_closed(self, bint closed) noexcept
    cdef int post(self, Handle handle, ReadyQueue ready) except -1
    cdef int move_to(self, ReadyQueue ready) except -1
