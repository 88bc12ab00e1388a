cdef bint put_if_plain(object queue, object item) except -1
cdef bint is_plain(object queue) noexcept
cdef bint has_no_item(object queue) noexcept
cdef object take(object queue)
