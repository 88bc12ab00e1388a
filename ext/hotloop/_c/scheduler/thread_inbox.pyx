"""Inbox: holds the callbacks that other threads post to a loop, until the loop queues them. Unused with the GIL.

locking.h lists what other threads may touch of a loop.
"""

cimport cython

from hotloop._c.runtime.locking cimport PyThread_get_thread_ident, inbox_acquire, inbox_release, shared_set
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, push


@cython.final
cdef class Inbox:
    """The handles that were posted to a loop, in the order of the calls."""

    def __cinit__(self):
        self.handles = []
        self.owner = PyThread_get_thread_ident()

    cdef int claim(self) noexcept:
        """Called by a thread that begins to run the loop: from now on only this thread touches the ready queue."""
        inbox_acquire(&self.lock)
        self.owner = PyThread_get_thread_ident()
        inbox_release(&self.lock)
        return 0

    cdef bint is_owner(self) noexcept:
        """True in the thread that runs the loop, ran it last, or created it."""
        cdef unsigned long owner
        inbox_acquire(&self.lock)
        owner = self.owner
        inbox_release(&self.lock)
        return owner == PyThread_get_thread_ident()

    cdef int set_closed(self, bint closed) noexcept:
        """Called by the loop's own thread. Once the loop is closed, post() raises and no thread wakes the poller."""
        inbox_acquire(&self.lock)
        self.closed = closed
        inbox_release(&self.lock)
        return 0

    cdef int post(self, Handle handle, ReadyQueue ready) except -1:
        """Post a handle, from any thread; the caller wakes the loop afterwards. The loop's own thread puts the handle
        straight on the ready queue, which keeps the order of that thread's calls."""
        inbox_acquire(&self.lock)
        try:
            if self.closed:
                raise RuntimeError("Event loop is closed")
            if self.owner == PyThread_get_thread_ident():
                push(ready, handle)
            else:
                self.handles.append(handle)
                shared_set(&self.filled, 1)
        finally:
            inbox_release(&self.lock)
        return 0

    cdef int move_to(self, ReadyQueue ready) except -1:
        """Move all handles to the ready queue; called by the loop's own thread. If there is no memory for a longer
        queue, the rest stays for the next time."""
        cdef list handles, empty = []
        cdef Py_ssize_t queued = 0
        shared_set(&self.filled, 0)
        inbox_acquire(&self.lock)
        handles = self.handles
        self.handles = empty
        inbox_release(&self.lock)
        try:
            for handle in handles:
                push(ready, handle)
                queued += 1
        except MemoryError:
            inbox_acquire(&self.lock)
            try:
                # Ahead of the handles that were posted in the meantime.
                self.handles[:0] = handles[queued:]
            finally:
                inbox_release(&self.lock)
                shared_set(&self.filled, 1)
        return 0
