from hotloop._c.ready cimport Handle, ReadyQueue


cdef class TimerHandle(Handle):
    cdef double deadline            # in seconds, by the loop's clock
    cdef object given               # the deadline as it was given, if that was no float; else None
    cdef unsigned long long order   # among equal deadlines: first made, first run
    cdef Py_ssize_t index           # in the heap; -1: not in it
    cdef TimerQueue timers          # the queue that holds it; None: none


cdef class TimerQueue:
    cdef list heap                  # of TimerHandles; outsiders may see and change it as loop._scheduled
    cdef unsigned long long pushed  # since the beginning

    cdef int push(self, TimerHandle handle) except -1
    cdef int remove(self, TimerHandle handle) except -1
    cdef int expire(self, double now, ReadyQueue ready) except -1
    cdef double next_deadline(self) except? -1


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context)
