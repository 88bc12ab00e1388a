cdef object waiting_behind(object callback)
