"""byte_arrays.h."""

cdef extern from "runtime/byte_arrays.h":
    bint byte_array_is_exported(object array) noexcept
    # All that follow are for a bytearray that is not exported.
    void byte_array_shorten(object array, Py_ssize_t size) noexcept
    int byte_array_append(object array, const char *data, Py_ssize_t size) except -1
    object byte_array_take_front(object array, Py_ssize_t count)
    Py_ssize_t byte_array_find(object array, const char *sought, Py_ssize_t size, Py_ssize_t start) noexcept
