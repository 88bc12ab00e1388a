from hotloop._c.ready cimport Handle, ReadyQueue

from cpython.object cimport PyObject


cdef extern from "timer_heap.h":
    ctypedef struct timer_place:
        Py_ssize_t index
        PyObject *timer

    ctypedef struct timer_entry:
        double deadline
        timer_place *place

    ctypedef struct timer_heap:
        timer_entry *entries
        Py_ssize_t count


cdef class TimerHandle(Handle):
    cdef double deadline            # in seconds, by the loop's clock
    cdef object given               # the deadline as it was given, if that was no float; else None
    cdef timer_place place          # in the heap of `timers`
    cdef Py_ssize_t slot            # in the list of `timers`
    cdef TimerQueue timers          # the queue that holds it; None: none


cdef class TimerQueue:
    cdef timer_heap heap
    cdef list handles               # the references, for the garbage collector: heap.count in no order, then None

    cdef int push(self, TimerHandle handle) except -1
    cdef int remove(self, TimerHandle handle) except -1
    cdef int expire(self, double now, ReadyQueue ready) except -1
    cdef int clear(self) except -1
    cdef list in_order(self)


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context)
