cdef object running_loop()
cdef bint runs_on_hotloop(object loop, object task) noexcept
cdef bint is_debugging(object loop, object task) except -1
cdef int cancel_handle(object handle) except -1
cdef bint is_timeout_unchanged() noexcept
cdef object new_timeout(object when)
cdef bint enter_timeout(object timeout, object loop, object task) except -1
cdef object close_timeout(object timeout, object outcome, object error)
