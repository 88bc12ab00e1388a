from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport Runnable
from hotloop._c.tasks.future cimport Future


cdef class DoneCallback(Runnable):
    cdef Future future              # the one that it was added to
    cdef object context             # shared: nothing runs in it
    cdef bint was_cancelled

    cdef bint act(self) except -1
    cdef object function(self)
    cdef Handle handle(self)


cdef object shared_context(object known)
cdef bint get_count(object cell, Py_ssize_t *count) noexcept
