cdef object thrown(object kind, object value, object traceback)
cdef object instead_of_stop_iteration(object error)
