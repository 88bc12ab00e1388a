cdef class Runnable:
    cdef int run(self) except -1
    cdef bint is_cancelled(self) noexcept
    cdef tuple done_callback(self)


cdef class ReadyQueue:
    cdef list ring              # a power of two of slots; those not in use hold None
    cdef Py_ssize_t head        # the slot of the oldest
    cdef Py_ssize_t count       # of queued Runnables
    cdef Py_ssize_t mask        # len(ring) - 1
    cdef public bint direct     # futures and tasks may queue themselves: no debug mode, call_soon() is LoopCore's own
    cdef public bint closed     # the loop is closed: queueing raises
    cdef public object entered  # the task that current_task() answers with, left lazily; None: none

    cdef int push(self, Runnable item) except -1
    cdef Runnable pop(self)
    cdef int resize(self, Py_ssize_t size) except -1
    cdef int relax(self) except -1
    cdef int schedule(self, Runnable item) except -1


cdef class Handle(Runnable):
    cdef object __weakref__
    cdef object callback            # None once cancelled
    cdef tuple args                 # None once cancelled
    cdef object loop
    cdef object context
    cdef object source_traceback    # of the call_soon(), in debug mode; else None
    cdef object text                # repr() of what was cancelled, in debug mode; else None
    cdef bint dropped            # by cancel()

    cdef int cancel_now(self) except -1
    cdef int trace(self) except -1


cdef Handle new_handle(object callback, tuple args, object loop, object context)
cdef int run_reporting(Runnable item, object loop) except -1
cdef int report(object loop, Runnable item, object error) except -1
