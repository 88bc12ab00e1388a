from cpython.object cimport PyObject


cdef class EventFields:
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop               # None: not bound to one yet
    cdef object _waiters            # a deque of futures
    cdef object _value              # True: the event is set


cdef bint is_plain_event(PyObject *event) noexcept
cdef object new_set_event()
cdef int set_plain_event(EventFields event) except -1
