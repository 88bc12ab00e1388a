"""Inbox: callbacks that other threads have for a loop, until it queues them itself. Empty where there is a GIL.

See lock.h for what other threads may touch of a loop.
"""

cimport cython

from hotloop._c.ready cimport Handle, ReadyQueue, push

cdef extern from "quiet.h":
    pass

cdef extern from "lock.h":
    void shared_set(shared_flag *, int)
    void inbox_acquire(inbox_lock *)
    void inbox_release(inbox_lock *)


@cython.final
cdef class Inbox:
    """The handles that were posted to a loop, in the order in which they were."""

    def __cinit__(self):
        self.handles = []

    cdef int put(self, Handle handle) except -1:
        """From any thread. The loop has to be woken afterwards."""
        inbox_acquire(&self.lock)
        try:
            self.handles.append(handle)
        finally:
            inbox_release(&self.lock)
        shared_set(&self.filled, 1)
        return 0

    cdef int empty_into(self, ReadyQueue ready) except -1:
        """By the loop's own thread."""
        cdef list handles, none = []
        shared_set(&self.filled, 0)
        inbox_acquire(&self.lock)
        handles = self.handles
        self.handles = none
        inbox_release(&self.lock)
        for handle in handles:
            push(ready, handle)
        return 0
