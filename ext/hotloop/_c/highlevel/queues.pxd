cdef bint put_if_plain(object queue, object item) except -1
cdef bint is_plain(object queue) noexcept
cdef bint is_empty(object queue) noexcept
cdef object take(object queue)
