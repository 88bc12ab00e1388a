"""Inbox: callbacks that other threads have for a loop, until it queues them itself. Empty where there is a GIL.

See locking.h for what other threads may touch of a loop.
"""

cimport cython

from hotloop._c.scheduler.ready_queue cimport Handle, ReadyQueue, push

cdef extern from "runtime/locking.h":
    void shared_set(shared_flag *, int)
    void inbox_acquire(inbox_lock *)
    void inbox_release(inbox_lock *)

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


@cython.final
cdef class Inbox:
    """The handles that were posted to a loop, in the order in which they were."""

    def __cinit__(self):
        self.handles = []
        self.home = PyThread_get_thread_ident()

    cdef int claim(self) noexcept:
        """By the thread that begins to run the loop: from now on it alone puts anything on the ready queue."""
        inbox_acquire(&self.lock)
        self.home = PyThread_get_thread_ident()
        inbox_release(&self.lock)
        return 0

    cdef bint is_home(self) noexcept:
        """True in the thread that runs the loop, ran it last, or made it."""
        cdef unsigned long home
        inbox_acquire(&self.lock)
        home = self.home
        inbox_release(&self.lock)
        return home == PyThread_get_thread_ident()

    cdef int close(self, bint closed) noexcept:
        """Whoever comes after the loop was closed is refused. By the loop's own thread."""
        inbox_acquire(&self.lock)
        self.closed = closed
        inbox_release(&self.lock)
        return 0

    cdef int put(self, Handle handle, ReadyQueue ready) except -1:
        """From any thread; the loop has to be woken afterwards. What its own thread has goes on the ready queue, so
        that the order is that of its calls."""
        inbox_acquire(&self.lock)
        try:
            if self.closed:
                raise RuntimeError("Event loop is closed")
            if self.home == PyThread_get_thread_ident():
                push(ready, handle)
            else:
                self.handles.append(handle)
                shared_set(&self.filled, 1)
        finally:
            inbox_release(&self.lock)
        return 0

    cdef int empty_into(self, ReadyQueue ready) except -1:
        """By the loop's own thread. What there is no memory to queue stays for the next time."""
        cdef list handles, none = []
        cdef Py_ssize_t queued = 0
        shared_set(&self.filled, 0)
        inbox_acquire(&self.lock)
        handles = self.handles
        self.handles = none
        inbox_release(&self.lock)
        try:
            for handle in handles:
                push(ready, handle)
                queued += 1
        except MemoryError:
            inbox_acquire(&self.lock)
            try:
                # Before what was posted meanwhile.
                self.handles[:0] = handles[queued:]
            finally:
                inbox_release(&self.lock)
                shared_set(&self.filled, 1)
        return 0
