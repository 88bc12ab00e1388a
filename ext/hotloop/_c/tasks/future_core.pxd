from cpython.object cimport PyObject

from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable


cdef enum State:
    PENDING
    CANCELLED
    FINISHED


cdef extern from *:
    ctypedef bint flag "char"       # a bint of one byte


cdef extern from "runtime/locking.h":
    State published_state "published" (State *) noexcept
    void publish_state "publish" (State *, State) noexcept


# Without the GIL, a future is changed in a critical section of it, and the outcome is set before `state`. So the
# outcome of a future that is done can be read without one.
#
# Tools outside the process read `awaited_by` and the two flags after `state`. tasks_in_view.h says why they must stay
# where they are.
cdef class FutureCore(Runnable):
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef object loop                # None: __init__() was never called
    cdef ReadyQueue queue           # the loop's ready queue, if that is a ReadyQueue; else None
    cdef object value               # once FINISHED: the result, or the traceback that `error` had when it was set
    cdef object error               # once FINISHED: the exception, or None; once CANCELLED: see make_cancelled_error()
    cdef object cancel_message
    cdef object first               # the first done callback or waiting Runnable; None: there is none
    cdef object first_context       # of `first`; None for a Runnable
    cdef PyObject *awaited_by       # borrowed: the task that goes on after `first`; NULL: none is known
    cdef State state
    cdef flag is_task
    cdef flag awaited_by_is_set     # always 0: only the first waiting task is shown
    cdef flag blocking              # `await` has yielded the future to the task that is running the coroutine
    cdef flag log_traceback         # the exception was not retrieved: __del__() reports it
    cdef list others                # further ones, as (callback, context) or Runnable; None: there are none
    cdef object source_traceback    # the stack of the constructor's caller, in debug mode; else None

    cdef int initialize(self, object loop) except -1
    cdef int check_initialized(self) except -1
    cdef bint is_exact(self) noexcept
    cdef object take_result(self)
    cdef object take_error(self)
    cdef object not_done_message(self, object pending)
    cdef int finish(self, object value) except -1
    cdef int fail(self, object error) except -1
    cdef bint set_cancelled(self, object message) except -1
    cdef int wait_for(self, Runnable waiter, PyObject *task) except -1
    cdef int add_callback(self, object callback, object context) except -1
    cdef bint append_entry(self, object entry) except -1
    cdef Py_ssize_t remove_callbacks(self, object fn) except? -1
    cdef Py_ssize_t remove_others(self, object fn) except? -1
    cdef bint stop_waiting(self, Runnable waiter) except -1
    cdef int schedule_callbacks(self) except -1
    cdef int schedule_several(self) except -1
    cdef int schedule_waiter(self, Runnable waiter) except -1
    cdef int schedule_callback(self, object callback, object context) except -1
    cdef object make_cancelled_error(self)
    cdef int report_unretrieved(self) except -1
    cdef list entries(self)


cdef inline State state_of(FutureCore future) noexcept:
    return published_state(&future.state)


cdef void empty_future(FutureCore future) noexcept
cdef ReadyQueue queue_of(object loop)


cdef inline PyObject *waiting_task(object caller) noexcept:
    """`caller`, if it is a task that Future.awaited_by can refer to; else NULL."""
    return <PyObject *>caller if isinstance(caller, FutureCore) and (<FutureCore>caller).is_task else NULL
