from cpython.object cimport PyObject

from hotloop._c.highlevel.deque cimport deque_size
from hotloop._c.tasks.future cimport Future


cdef inline bint is_our_future(object waiter) noexcept:
    """Whether it is one of hotloop's futures, of no subclass: then looking at it, and setting its result, runs no code
    of the program's."""
    return isinstance(waiter, Future) and (<Future>waiter).is_exact()


cdef inline bint has_waiters(PyObject *waiters) noexcept:
    """Whether there is one in `waiters`, a deque or None."""
    return waiters != <PyObject *>None and deque_size(<object>waiters) > 0


cdef object create_waiter(object owner, object bound_loop)
cdef object add_waiter(object owner, object waiters, object bound_loop)
cdef int append_waiter(object waiters, object waiter) except -1
cdef bint is_done(object waiter) except -1
cdef int wake(object waiter, object result) except -1
cdef int wake_first(object waiters) except -1
cdef bint are_all_cancelled(object waiters) except -1
cdef bint is_surely_waiting(object waiters) except -1
cdef bint remove_waiter(object waiters, object waiter) except -1
cdef int fail_waiting(object owner, object waiter, object error) except -1
