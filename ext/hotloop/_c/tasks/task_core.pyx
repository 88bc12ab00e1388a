"""TaskCore: the steps of a task. Task adds its beginning, its end and the methods that Python calls.

A task is a Runnable. On hotloop's loop, the task itself goes on the ready queue for each step, which is then one C
call. Otherwise (another loop, debug mode, a replaced call_soon()) steps go through loop.call_soon() with the bound
methods `_step` and `_wakeup`, as asyncio's do.
"""

from cpython.contextvars cimport PyContext_Exit
from cpython.object cimport PyObject

from hotloop._c.runtime.python_api cimport try_to_enter
from hotloop._c.runtime.references cimport steal
from hotloop._c.runtime.send_slots cimport (
    PYGEN_ERROR,
    PYGEN_NEXT,
    PYGEN_RETURN,
    PyIter_Send,
    PySendResult,
    raise_set_error,
)
from hotloop._c.scheduler.handles cimport run_reporting
from hotloop._c.scheduler.ready_queue cimport (
    ReadyQueue,
    may_queue_directly,
    object_section,
    schedule,
    section_enter,
    section_leave,
)
from hotloop._c.tasks.current_task cimport current_task, enter_task, leave_task
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport CANCELLED, FINISHED, PENDING, state_of
from hotloop._c.tasks.thrown_exceptions cimport exception_matches

import inspect
from asyncio import exceptions, futures, tasks

cdef object CancelledError = exceptions.CancelledError
cdef object InvalidStateError = exceptions.InvalidStateError

cdef extern from "Python.h":
    bint PyContext_CheckExact(object)

cdef extern from "runtime/error_indicator.h":
    object with_context(object error)

cdef extern from "tasks/coroutine.h":
    int coroutine_install() except -1
    PyObject *coroutine_throw(object coroutine, object error) noexcept
    object coroutine_result(object stopped)

cdef extern from "tasks/asyncio_future.h":
    int asyncio_future_find(object future, object task, object wakeup) except -1
    bint is_asyncio_future(object) noexcept
    object asyncio_future_loop(object future)
    bint asyncio_future_is_blocking(object future) except -1
    int asyncio_future_wait(object future, object task, object context) except -1
    object asyncio_future_get_result(object future)

cdef extern from "tasks/tasks_in_view.h":
    void unlink_task(task_link *)

coroutine_install()


cdef class TaskCore(Future):
    """The base class of Task."""

    # -- scheduling ----------------------------------------------------------------------------------------------------

    cdef int schedule_step(self) except -1:
        cdef ReadyQueue queue = self.queue
        if queue is not None and may_queue_directly(queue, self.loop):
            return schedule(queue, self)
        return self.call_soon_step()

    cdef int call_soon_step(self) except -1:
        # Kept, as below: the loop may be any, and Cython hands a field on without a reference of the call's own.
        cdef object context = self.context
        self.loop.call_soon(self._step, context=context)
        return 0

    cdef int schedule_throw(self, object error) except -1:
        """Raise `error` into the coroutine at the next step."""
        cdef object context = self.context
        self.loop.call_soon(self._step, error, context=context)
        return 0

    cdef tuple done_callback(self):
        return (self._wakeup, self.context)

    # -- stepping ------------------------------------------------------------------------------------------------------

    cdef int run(self) except -1:
        """Run a step from the ready queue. The task stays the current one until the loop runs something else: most
        steps follow another step, and setting and clearing the current task in each costs more than the rest of it."""
        cdef ReadyQueue queue = self.queue
        cdef object context = self.context
        cdef object error
        if queue is None or not PyContext_CheckExact(context):
            return self.run_like_handle()
        error = None if self.fut_waiter is None else self.error_of_awaited()
        if queue.entered_task is not self:
            enter_task(self.loop, self)
            queue.entered_task = self
        if try_to_enter(<PyObject *>context) < 0:
            stop_before_step(self)
        try:
            self.step(error)
        finally:
            PyContext_Exit(context)
            if self.state != PENDING:
                self.stop_being_current()
        return 0

    cdef int run_like_handle(self) except -1:
        """Run a step by the run() method of the task's context, which is no Context, as an asyncio.Handle would."""
        self.check_runnable()       # the collector may have cleared the task since it was queued
        cdef object before = self.queue.entered_task, awaited
        if before is not None:
            self.queue.entered_task = None
            leave_task(self.loop, before)
        awaited = self.fut_waiter
        if awaited is None:
            self.context.run(self._step)
        else:
            self.context.run(self._wakeup, awaited)
        return 0

    cdef object error_of_awaited(self):
        """The exception of the future that the task waited for; None if it has a result, or is not done."""
        cdef object awaited = self.fut_waiter
        return error_to_throw(awaited) if isinstance(awaited, Future) else None

    cdef int stop_being_current(self) except -1:
        """Stop being the current task after run(): at the latest when the task is done, because callbacks may ask for
        current_task()."""
        cdef ReadyQueue queue = self.queue
        # The coroutine may have called __init__() with another loop.
        if queue is not None and queue.entered_task is self:
            queue.entered_task = None
            leave_task(self.loop, self)
        return 0

    cdef int check_runnable(self) except -1:
        if self.queue is None:
            raise RuntimeError(f"{object.__repr__(self)} does not belong to a loop that can run it")
        return 0

    def _run(self):
        # Called by programs that take tasks from loop._ready themselves, maybe inside the step of another task.
        cdef ReadyQueue queue = self.queue
        cdef object entered
        self.check_runnable()
        entered = queue.entered_task
        queue.entered_task = None
        try:
            run_reporting(self, self.loop)
            self.stop_being_current()
        finally:
            queue.entered_task = entered

    def _step(self, error=None, /):
        self.step_in_context(error)

    def _wakeup(self, future, /):
        cdef object error = None
        if isinstance(future, Future) and (<Future>future).is_exact():
            error = error_to_throw(future)
        else:
            try:
                if is_asyncio_future(future):
                    asyncio_future_get_result(future)
                else:
                    future.result()
            except BaseException as raised:
                error = raised
        self.step_in_context(error)

    cdef int step_in_context(self, object error) except -1:
        """Run a step from a handle, which has entered the context."""
        cdef object loop = self.loop
        if self.queue is not None and self.queue.entered_task is self:
            self.stop_being_current()
        if current_task(loop) is None:
            enter_task(loop, self)
        else:
            tasks._enter_task(loop, self)       # raises the error
        try:
            self.step(error)
        finally:
            if current_task(loop) is self:
                leave_task(loop, self)
            else:
                tasks._leave_task(loop, self)   # raises the error
        return 0

    cdef int step(self, object error) except -1:
        """Take a step in the context that is entered. `error` is thrown into the coroutine; None: nothing is."""
        if state_of(self) != PENDING:
            return self.refuse_step(error)
        if self.must_cancel:
            self.must_cancel = False
            if not isinstance(error, CancelledError):
                error = self.make_cancelled_error()
        if self.fut_waiter is not None:
            set_waiter(self, None)
        return self.advance(error)

    cdef int refuse_step(self, object error) except -1:
        raise InvalidStateError(f"step(): already done: {self!r}, {error!r}")

    cdef int advance(self, object error) except -1:
        """Resume the coroutine, and act on what it yields, returns or raises."""
        cdef PyObject *yielded = NULL
        cdef object coro = self.coro
        cdef PySendResult status
        if self.queue is not None:
            self.queue.steps += 1
        if error is None:
            status = PyIter_Send(<PyObject *>coro, <PyObject *>None, &yielded)
        else:
            yielded = coroutine_throw(coro, error)
            status = PYGEN_ERROR if yielded == NULL else PYGEN_NEXT
        if status == PYGEN_NEXT:
            return self.wait_on(steal(yielded))
        if status == PYGEN_RETURN:
            return self.coroutine_returned(steal(yielded))
        return self.coroutine_raised()

    cdef int coroutine_returned(self, object value) except -1:
        """The coroutine has returned."""
        unlink_task(&self.link)
        if self.must_cancel:
            # Cancelled during its last step, too late to throw a CancelledError.
            self.must_cancel = False
            self.set_cancelled(self._cancel_message)
        else:
            self.finish(value)
        return 0

    cdef int coroutine_raised(self) except -1:
        """The coroutine has raised; the error indicator is set."""
        try:
            raise_set_error()
        except StopIteration as stopped:
            if exception_matches(stopped, StopIteration):
                self.coroutine_returned(coroutine_result(stopped))
            else:
                # There was no memory for a StopIteration with the coroutine's result: this is the MemoryError.
                unlink_task(&self.link)
                self.fail(stopped)
        except CancelledError as error:
            unlink_task(&self.link)
            if self.state == PENDING:       # else the coroutine has called Future.set_result(task, ...)
                self.error = error
            self.set_cancelled(None)
        except (KeyboardInterrupt, SystemExit) as error:
            unlink_task(&self.link)
            self.fail(error)
            raise
        except BaseException as error:
            unlink_task(&self.link)
            self.fail(error)
        return 0

    # -- waiting -------------------------------------------------------------------------------------------------------

    cdef int wait_on(self, object yielded) except -1:
        """The coroutine has yielded: a future to wait for, or None to go on in the next iteration."""
        if yielded is None:
            return self.schedule_step()
        if isinstance(yielded, Future) and (<Future>yielded).is_exact():
            return self.wait_on_future(yielded)
        return self.wait_on_other_object(yielded)

    cdef int wait_on_other_object(self, object yielded) except -1:
        cdef object blocking, text
        if is_asyncio_future(yielded):
            return self.wait_on_asyncio_future(yielded)
        blocking = getattr(yielded, "_asyncio_future_blocking", None)
        if blocking is not None:
            return self.wait_on_foreign_future(yielded, blocking)
        if inspect.isgenerator(yielded):
            text = f"yield was used instead of yield from for generator in task {self!r} with {yielded!r}"
        else:
            text = f"Task got bad yield: {yielded!r}"
        return self.schedule_throw(RuntimeError(text))

    cdef int wait_on_future(self, Future awaited) except -1:
        if self.rejects_awaited(awaited, awaited.loop, awaited.blocking):
            return 0
        awaited.blocking = False
        if self.queue is not None and may_queue_directly(self.queue, self.loop):
            awaited.wait_for(self, <PyObject *>self)
        else:
            awaited.add_callback(self._wakeup, self.context)
        set_waiter(self, awaited)
        if self.must_cancel:
            self.cancel_awaited()
        return 0

    cdef int wait_on_asyncio_future(self, object awaited) except -1:
        """A future or a task of asyncio's own class."""
        if self.rejects_awaited(awaited, asyncio_future_loop(awaited), asyncio_future_is_blocking(awaited)):
            return 0
        asyncio_future_wait(awaited, self, self.context)
        set_waiter(self, awaited)
        if self.must_cancel:
            self.cancel_awaited()
        return 0

    cdef int wait_on_foreign_future(self, object awaited, object blocking) except -1:
        """A future of a subclass, or of any class that follows the protocol."""
        cdef object context
        get_loop = getattr(awaited, "get_loop", None)
        if self.rejects_awaited(awaited, awaited._loop if get_loop is None else get_loop(), blocking):
            return 0
        awaited._asyncio_future_blocking = False
        context = self.context
        awaited.add_done_callback(self._wakeup, context=context)
        set_waiter(self, awaited)
        if self.must_cancel:
            self.cancel_awaited()
        return 0

    cdef bint rejects_awaited(self, object awaited, object loop, bint blocking) except -1:
        """True if the task cannot wait for `awaited`; then the next step raises an error into the coroutine."""
        if blocking and loop is self.loop and awaited is not self:
            return False
        if awaited is self:
            text = f"Task cannot await on itself: {self!r}"
        elif loop is not self.loop:
            text = f"Task {self!r} got Future {awaited!r} attached to a different loop"
        else:
            text = f"yield was used instead of yield from in task {self!r} with {awaited!r}"
        self.schedule_throw(RuntimeError(text))
        return True

    cdef int cancel_awaited(self) except -1:
        """The task was cancelled during the step: cancel the future that it has begun to wait for."""
        cdef object awaited = self.fut_waiter, message
        cdef object_section section
        section_enter(&section, self)
        message = self.cancel_message
        section_leave(&section)
        if awaited.cancel(msg=message):
            self.must_cancel = False
        return 0


asyncio_future_find(futures.Future, tasks.Task, TaskCore._wakeup)


cdef inline int set_waiter(TaskCore task, object awaited) except -1:
    cdef object_section section
    section_enter(&section, task)
    task.fut_waiter = awaited
    section_leave(&section)
    return 0


cdef int stop_before_step(TaskCore task) except -1:
    """Raise the error that is set: the task's context is entered already. The task stops being the current one first,
    because report_exception() must find none, as after a handle of asyncio's."""
    try:
        raise_set_error()
    finally:
        task.stop_being_current()
    return 0


cdef object error_to_throw(Future future):
    """What to throw into a task that has waited for `future`: its exception, or None if it has a result or is not
    done."""
    if state_of(future) == FINISHED and future.error is None:
        future.log_traceback = False
        return None
    cdef object error
    try:
        error = future.take_error()
        if state_of(future) == CANCELLED:
            # What the caller of the loop handles is its context, as asyncio raises it before it throws it.
            error = with_context(error)
    except BaseException as raised:
        # There was no memory for a CancelledError. Throw the MemoryError: without a step the task would wait for ever.
        error = raised
    return error
