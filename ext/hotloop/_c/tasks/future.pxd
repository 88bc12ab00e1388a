from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable


cdef enum State:
    PENDING
    CANCELLED
    FINISHED


cdef extern from "runtime/locking.h":
    State glimpse_state "glimpse" (State *) noexcept
    void settle_state "settle" (State *, State) noexcept


# Without the GIL, what changes is changed in a critical section of the future: `state` after what it stands for. So the
# outcome of a future that is done can be read without one.
cdef class Future(Runnable):
    cdef object attributes          # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef object loop                # None: __init__() was never called
    cdef ReadyQueue queue           # of the loop, if it is one of ours; else None
    cdef object value               # the result, once FINISHED without an exception
    cdef object error               # the exception, once FINISHED with one
    cdef object error_traceback     # of `error` when it was set: raising it again must not make it longer
    cdef object cancel_message
    cdef object cancelled_error     # the CancelledError that ended a task, raised to its first waiter only
    cdef object first               # a done callback, or a Runnable that waits; None: there is none
    cdef object first_context       # of `first`; None for a Runnable
    cdef list others                # further ones, as (callback, context) or Runnable; None: there are none
    cdef object source_traceback    # of the constructor, in debug mode; else None
    cdef State state
    cdef bint blocking              # yielded by `await` to the task that steps it
    cdef bint log_traceback         # an exception that nobody has seen yet

    cdef int bind(self, object loop) except -1
    cdef int alive(self) except -1
    cdef bint plain(self) noexcept
    cdef object take_result(self)
    cdef object take_error(self)
    cdef object why_not(self, object pending)
    cdef int finish(self, object value) except -1
    cdef int fail(self, object error) except -1
    cdef bint abandon(self, object message) except -1
    cdef int wait_for(self, Runnable waiter) except -1
    cdef int add_callback(self, object callback, object context) except -1
    cdef bint keep(self, object entry) except -1
    cdef Py_ssize_t remove_others(self, object fn) except? -1
    cdef int schedule_callbacks(self) except -1
    cdef int schedule_several(self) except -1
    cdef int schedule_waiter(self, Runnable waiter) except -1
    cdef int schedule_callback(self, object callback, object context) except -1
    cdef object make_cancelled_error(self)
    cdef int report_unseen(self) except -1
    cdef list entries(self)


cdef inline State state_of(Future future) noexcept:
    return glimpse_state(&future.state)


cdef Future new_future(object loop, ReadyQueue queue)
cdef void empty_future(Future future) noexcept
cdef ReadyQueue queue_of(object loop)
cdef void set_stop_iteration(object value) noexcept
