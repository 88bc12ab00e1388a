cdef object running_loop()
cdef bint runs_on_hotloop(object loop, object task) noexcept
cdef bint is_debugging(object loop, object task) except -1
cdef int cancel_handle(object handle) except -1
