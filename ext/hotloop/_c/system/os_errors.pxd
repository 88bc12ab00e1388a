cdef object os_error(Py_ssize_t result)
cdef object caught_os_error(Py_ssize_t result)
