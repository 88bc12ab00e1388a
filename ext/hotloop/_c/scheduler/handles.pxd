from cpython.object cimport PyObject

from hotloop._c.scheduler.ready_queue cimport Runnable


cdef class Handle(Runnable):
    cdef object __weakref__
    cdef object callback            # None once cancelled
    cdef object args                # a tuple, or what a program has set; None once cancelled
    cdef object loop
    cdef object context             # to run in; if `context_shared`, to be copied for that
    cdef object source_traceback    # of the call_soon(), in debug mode; else None
    cdef object cancelled_repr      # repr() from before cancel(), in debug mode; else None
    cdef bint was_cancelled         # maybe by another thread: changed in a critical section
    cdef bint context_shared        # other handles have `context` too: nothing may run in it

    cdef int cancel_now(self) except -1
    cdef object own_context(self)
    cdef bint has_own_context(self) except -1
    cdef int record_source_traceback(self) except -1


cdef object copy_context(object context)
cdef object copy_current_context()
cdef object acquire_context()
cdef void release_context(PyObject *context) noexcept
cdef void begin_caching_contexts() noexcept
cdef void end_caching_contexts() noexcept
cdef Handle new_handle(object callback, tuple args, object loop, object context)
cdef Handle new_threadsafe_handle(object callback, tuple args, object loop, object context)
cdef int retire(PyObject *item) except -1
cdef int run_reporting(Runnable item, object loop) except -1
cdef int report_exception(object loop, Runnable item, object error) except -1
