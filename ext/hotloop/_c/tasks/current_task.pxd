cdef int enter_task(object loop, object task) except -1
cdef int leave_task(object loop, object task) except -1
cdef object swap_task(object loop, object task)
cdef object current_task(object loop)
