cdef object create_waiter(object owner, object bound_loop)
cdef bint is_done(object waiter) except -1
cdef int wake(object waiter, object result) except -1
cdef int wake_first(object waiters) except -1
cdef int remove_waiter(object waiters, object waiter) except -1
