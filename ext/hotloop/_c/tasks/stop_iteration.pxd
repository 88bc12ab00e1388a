cdef void set_stop_iteration(object value) noexcept
cdef void end_iteration(object value) noexcept
