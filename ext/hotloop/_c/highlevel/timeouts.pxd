cdef bint is_timeout_unchanged() noexcept
cdef object new_timeout(object when)
cdef bint enter_timeout(object timeout, object loop, object task) except -1
cdef object close_timeout(object timeout, object outcome, object error)
