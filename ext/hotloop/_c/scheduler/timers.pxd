from cpython.object cimport PyObject
from libc.math cimport INFINITY

from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue

cdef extern from "scheduler/timer_heap.h":
    ctypedef struct timer_due:
        double deadline

    ctypedef struct timer_heap:
        Py_ssize_t live
        Py_ssize_t slots
        PyObject **handles

    const timer_due *timer_heap_first(timer_heap *)


cdef class TimerHandle(Handle):
    cdef double deadline            # in seconds, by the loop's clock
    cdef object given_deadline      # the deadline as the caller passed it, if not as a float; else None
    cdef Py_ssize_t slot            # in `timers.heap`
    cdef TimerQueue timers          # the queue in which it is pending; None: it is not pending


# Without the GIL, the queue, and `slot` and `timers` of its handles, are changed in a critical section of the queue.
cdef class TimerQueue:
    cdef timer_heap heap
    cdef object snapshot            # the context that `sharing` pending handles share; None: none do
    cdef Py_ssize_t sharing

    cdef int push(self, TimerHandle handle) except -1
    cdef int insert(self, TimerHandle handle, double deadline) except -1
    cdef int move(self, TimerHandle handle, double deadline) except -1
    cdef int share_context(self, TimerHandle handle) except -1
    cdef int remove(self, TimerHandle handle) except -1
    cdef double expire(self, double now, ReadyQueue ready) except? -1
    cdef int shrink(self) noexcept
    cdef int clear(self) noexcept
    cdef int replace(self, object handles) except -1
    cdef list in_order(self)


cdef inline double earliest(TimerQueue timers) noexcept:
    """The earliest deadline, in seconds, for builds without the GIL; infinity if another thread has cancelled the last
    timer."""
    cdef const timer_due *first
    cdef double deadline = INFINITY
    cdef object_section section
    section_enter(&section, timers)
    first = timer_heap_first(&timers.heap)
    if first != NULL:
        deadline = first.deadline
    section_leave(&section)
    return deadline


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context)
