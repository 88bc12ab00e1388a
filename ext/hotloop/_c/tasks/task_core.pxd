from cpython.object cimport PyObject

from hotloop._c.tasks.future cimport Future


cdef extern from "tasks/tasks_in_view.h":
    ctypedef struct task_link:
        task_link *next
        task_link *previous
    ctypedef struct task_number:
        pass


cdef class TaskCore(Future):
    # In this order, because tools outside the process read three of the next four: see tasks_in_view.h.
    cdef PyObject *coro_in_view     # borrowed: `coro`; NULL if that is no coroutine object: tools read no other
    cdef PyObject *name_in_view     # borrowed: `name`, or `number` if that is None
    cdef object context             # that every step runs in
    cdef task_link link             # in the list of live tasks
    cdef object coro
    cdef object name                # None until it is asked for: then "Task-<number>"
    cdef task_number number
    cdef object fut_waiter          # the future that it awaits; None: none
    cdef Py_ssize_t cancel_requests
    cdef bint must_cancel           # throw a CancelledError at the next step
    cdef bint log_destroy_pending

    cdef int schedule_step(self) except -1
    cdef int call_soon_step(self) except -1
    cdef int schedule_throw(self, object error) except -1
    cdef int run_like_handle(self) except -1
    cdef object error_of_awaited(self)
    cdef int stop_being_current(self) except -1
    cdef int step_in_context(self, object error) except -1
    cdef int step(self, object error) except -1
    cdef int refuse_step(self, object error) except -1
    cdef int advance(self, object error) except -1
    cdef int coroutine_returned(self, object value) except -1
    cdef int coroutine_raised(self) except -1
    cdef int wait_on(self, object yielded) except -1
    cdef int wait_on_other_object(self, object yielded) except -1
    cdef int wait_on_future(self, Future awaited) except -1
    cdef int wait_on_asyncio_future(self, object awaited) except -1
    cdef int wait_on_foreign_future(self, object awaited, object blocking) except -1
    cdef bint rejects_awaited(self, object awaited, object loop, bint blocking) except -1
    cdef int cancel_awaited(self) except -1
