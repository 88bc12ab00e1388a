"""Task: a future that runs a coroutine, one step after the other.

A task is a Runnable. On hotloop's loop, the task itself goes on the ready queue for each step, which is then one C
call. Otherwise (another loop, debug mode, a replaced call_soon()) steps go through loop.call_soon() with the bound
methods `_step` and `_wakeup`, as asyncio's do.

asyncio.all_tasks() sees these tasks because they are on asyncio's own list (asyncio_layout.pyx), or else through
hotloop._asyncio.task_registry, asyncio.current_task() through current_task.pyx.
"""

from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.object cimport PyObject, PyTypeObject

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
from hotloop._c.scheduler.handles cimport acquire_context, release_context, run_reporting
from hotloop._c.scheduler.ready_queue cimport (
    FREE_THREADED,
    ReadyQueue,
    may_queue_directly,
    object_section,
    schedule,
    section_enter,
    section_leave,
)
from hotloop._c.tasks.asyncio_layout cimport find_asyncios_list, view_offsets
from hotloop._c.tasks.current_task cimport enter_task, leave_task, swap_task
from hotloop._c.tasks.future cimport FINISHED, PENDING, Future, empty_future, state_of
from hotloop._c.tasks.thrown_exceptions cimport exception_matches

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """
    void free_memory_install(PyTypeObject *)
    void free_objects_install(PyTypeObject *, bint (*is_spent)(PyObject *) noexcept, void (*empty)(PyObject *) noexcept)
    PyObject *free_objects_acquire()

import asyncio
import inspect
import sys
from asyncio import base_tasks, coroutines, events, exceptions, tasks

from hotloop._asyncio import task_registry
from hotloop._asyncio.classes import assign_class, likeness

cdef extern from "runtime/locking.h":
    ctypedef struct shared_count:
        pass
    unsigned long long shared_next(shared_count *)

cdef object CancelledError = exceptions.CancelledError
cdef object InvalidStateError = exceptions.InvalidStateError
cdef bint uncancel_clears_must_cancel = sys.version_info >= (3, 13)
cdef bint checks_context = sys.version_info >= (3, 15)
cdef bint starts_eagerly = sys.version_info >= (3, 12)
# True if all_tasks() still shows a task that was garbage in a cycle and that the exception handler has saved. Up to
# 3.13 asyncio knows tasks by weak references, which the garbage collector clears first.
cdef bint lists_resurrected_tasks = sys.version_info >= (3, 14)
# Up to 3.13, asyncio keeps a set of tasks, and nothing for tools outside the process.
cdef bint keeps_list_of_tasks = sys.version_info >= (3, 14)
cdef shared_count task_count
cdef dict asyncio_names = asyncio.__dict__

cdef extern from "system/fork.h":
    int fork_watch()

cdef extern from "tasks/live_tasks.h":
    void link_task(task_link *)
    void unlink_task(task_link *)
    list list_live_tasks(size_t)
    void join_asyncios_list(int word)

cdef extern from "tasks/tasks_in_view.h":
    void task_number_init(task_number *) noexcept
    void task_number_set(task_number *, unsigned long long) noexcept
    unsigned long long task_number_get(task_number *) noexcept

cdef extern from *:
    """
    #define TASK struct __pyx_obj_7hotloop_2_c_5tasks_4task_Task
    #define FUTURE struct __pyx_obj_7hotloop_2_c_5tasks_6future_Future
    #define OWN_OFFSETS \\
        ((view_offsets){.awaited_by = offsetof(FUTURE, awaited_by), .state = offsetof(FUTURE, state), \\
                        .is_task = offsetof(FUTURE, is_task), \\
                        .awaited_by_is_set = offsetof(FUTURE, awaited_by_is_set), \\
                        .coroutine = offsetof(TASK, coro_in_view), .name = offsetof(TASK, name_in_view), \\
                        .link = offsetof(TASK, link)})
    """
    view_offsets OWN_OFFSETS

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)
    bint PyCoro_CheckExact(object)
    bint PyContext_CheckExact(object)

cdef extern from "tasks/coroutine.h":
    int coroutine_install() except -1
    PyObject *coroutine_throw(object coroutine, object error) noexcept
    object coroutine_result(object stopped)

coroutine_install()
if fork_watch() != 0:
    raise MemoryError("pthread_atfork() failed")


cdef view_offsets offsets = OWN_OFFSETS
cdef int asyncios_list = -1
if keeps_list_of_tasks and not FREE_THREADED:
    asyncios_list = find_asyncios_list(&offsets)
    join_asyncios_list(asyncios_list)


def are_in_view():
    """True if tools outside the process see the tasks. For tests."""
    return asyncios_list >= 0


def live_tasks():
    """The tasks that are not done, of all loops, if they are not in view."""
    return list_live_tasks(offsets.link)


# True if asyncio.all_tasks() sees the list of live tasks. If it cannot, each task registers itself.
cdef bint all_tasks_reads_list = are_in_view() or task_registry.add_source(live_tasks)


cdef Task new_task(object coro, object loop, ReadyQueue queue, object name, object context, bint eager):
    """A Task as create_task() makes one, outside debug mode; `eager`: its first step has run."""
    cdef PyObject *kept = free_objects_acquire()
    cdef Task task = Task.__new__(Task) if kept == NULL else <Task>steal(kept)
    task.loop = loop
    task.queue = queue
    task.prepare(coro, name, context)
    if eager:
        task.start_eagerly()
    else:
        task.schedule_step()
        task.register()
    return task


cdef bint is_spent(PyObject *task) noexcept:
    """True if __del__() has nothing to say."""
    return (<Task>task).state != PENDING and not (<Task>task).log_traceback


cdef void empty(PyObject *task) noexcept:
    """Make it what it was before prepare()."""
    cdef Task emptied = <Task>task
    cdef object context = emptied.context
    unlink_task(&emptied.link)
    emptied.log_destroy_pending = False
    if emptied.name is not None:
        emptied.name = None
    if emptied.fut_waiter is not None:
        emptied.fut_waiter = None
    emptied.coro_in_view = NULL
    emptied.coro = None
    emptied.context = None
    release_context(<PyObject *>context)
    empty_future(emptied)


cdef inline int set_waiter(Task task, object awaited) except -1:
    cdef object_section section
    section_enter(&section, task)
    task.fut_waiter = awaited
    section_leave(&section)
    return 0


cdef int stop_before_step(Task task) except -1:
    """The task's context is entered already, and the error indicator says so: report_exception() finds no current task,
    as a handle leaves none."""
    try:
        raise_set_error()
    finally:
        task.stop_being_current()
    return 0


cdef object error_to_throw(Future future):
    """The exception to throw into a task that has waited for `future`; None if the future has a result, or is not done.
    """
    if state_of(future) == FINISHED and future.error is None:
        future.log_traceback = False
        return None
    cdef object error
    try:
        error = future.take_error()
    except BaseException as raised:
        # There was no memory for a CancelledError. Throw the MemoryError: without a step the task would wait for ever.
        error = raised
    return error


cdef class Task(Future):
    """A coroutine that runs in an event loop. See asyncio.Task: isinstance() says that this is one."""

    def __cinit__(self, *args, **kwargs):
        self.is_task = True
        task_number_init(&self.number)

    def __init__(self, coro, *, loop=None, name=None, context=None, eager_start=False):
        self.initialize(loop)
        self.prepare(coro, name, context)
        if eager_start and starts_eagerly and self.loop.is_running():
            self.start_eagerly()
        else:
            self.schedule_step()
            self.register()

    @property
    def __class__(self):
        return asyncio_names["Task"] if type(self) is Task else likeness(type(self), asyncio_names["Task"])

    @__class__.setter
    def __class__(self, value):
        assign_class(self, value)

    cdef bint is_exact(self) noexcept:
        return type(self) is Task

    def __dealloc__(self):
        unlink_task(&self.link)

    def __del__(self):
        cdef Py_ssize_t references = Py_REFCNT(<PyObject *>self)    # 1: being freed; more: garbage in a cycle
        cdef bint linked = self.link.previous != NULL
        # First, so that all_tasks() does not show a half-cleared task, as weak references would not.
        unlink_task(&self.link)
        try:
            if self.state == PENDING and self.log_destroy_pending and self.loop is not None:
                self.report_pending()
            self.report_unretrieved()
        finally:
            if linked and self.state == PENDING and Py_REFCNT(<PyObject *>self) > references:
                # The exception handler has kept a reference: the task lives on.
                if references == 1 or lists_resurrected_tasks:
                    link_task(&self.link)

    cdef int report_pending(self) except -1:
        context = {"task": self, "message": "Task was destroyed but it is pending!"}
        if self.source_traceback:
            context["source_traceback"] = self.source_traceback
        self.loop.call_exception_handler(context)
        return 0

    def __repr__(self):
        return base_tasks._task_repr(self)

    # -- beginning -----------------------------------------------------------------------------------------------------

    cdef int prepare(self, object coro, object name, object context) except -1:
        if not PyCoro_CheckExact(coro) and not coroutines.iscoroutine(coro):
            # There is no coroutine that could be "destroyed but pending".
            self.log_destroy_pending = False
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if context is None:
            self.context = acquire_context()
        elif checks_context and not PyContext_CheckExact(context):
            self.log_destroy_pending = False
            raise TypeError(f"context must be a Context object, not {type(context).__name__}")
        else:
            self.context = context
        if self.fut_waiter is not None:
            self.fut_waiter = None
        self.must_cancel = False
        self.log_destroy_pending = True
        self.cancel_requests = 0
        self.coro = coro
        self.coro_in_view = <PyObject *>coro if PyCoro_CheckExact(coro) else NULL
        if name is None:
            task_number_set(&self.number, shared_next(&task_count))
            self.name = None
            self.name_in_view = <PyObject *>&self.number
        else:
            self.name = str(name)
            self.name_in_view = <PyObject *>self.name
        return 0

    cdef int register(self) except -1:
        """Make asyncio.all_tasks() know the task."""
        if not all_tasks_reads_list:
            tasks._register_task(self)
        elif self.link.previous == NULL:
            link_task(&self.link)
        return 0

    cdef int start_eagerly(self) except -1:
        """Run the first step at once, inside the task that creates this one. See asyncio.eager_task_factory()."""
        cdef object entered, before
        if FREE_THREADED and events._get_running_loop() is not self.loop:
            # The loop runs in another thread.
            self.schedule_step()
            return self.register()
        entered = None if self.queue is None else self.queue.entered_task
        before = swap_task(self.loop, self)
        if self.queue is not None:
            self.queue.entered_task = self
        try:
            if all_tasks_reads_list:
                self.register()
            else:
                tasks._register_eager_task(self)
            try:
                PyContext_Enter(self.context)
                try:
                    self.advance(None)
                finally:
                    PyContext_Exit(self.context)
            finally:
                if not all_tasks_reads_list:
                    tasks._unregister_eager_task(self)
        finally:
            swap_task(self.loop, before)
            if self.queue is not None:
                self.queue.entered_task = entered
            if self.state == PENDING:
                self.register()
            else:
                self.coro_in_view = NULL
                self.coro = None
        return 0

    # -- scheduling ----------------------------------------------------------------------------------------------------

    cdef int schedule_step(self) except -1:
        cdef ReadyQueue queue = self.queue
        if queue is not None and may_queue_directly(queue, self.loop):
            return schedule(queue, self)
        return self.call_soon_step()

    cdef int call_soon_step(self) except -1:
        self.loop.call_soon(self._step, context=self.context)
        return 0

    cdef int schedule_throw(self, object error) except -1:
        """Raise `error` into the coroutine at the next step."""
        self.loop.call_soon(self._step, error, context=self.context)
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
        if not PyContext_CheckExact(context):
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
        cdef object before = self.queue.entered_task
        if before is not None:
            self.queue.entered_task = None
            leave_task(self.loop, before)
        if self.fut_waiter is None:
            self.context.run(self._step)
        else:
            self.context.run(self._wakeup, self.fut_waiter)
        return 0

    cdef object error_of_awaited(self):
        """The exception of the future that the task waited for; None if it has a result, or is not done."""
        cdef object awaited = self.fut_waiter
        return error_to_throw(awaited) if isinstance(awaited, Future) else None

    cdef int stop_being_current(self) except -1:
        """Stop being the current task after run(): at the latest when the task is done, because callbacks may ask for
        current_task()."""
        if self.queue.entered_task is self:
            self.queue.entered_task = None
            leave_task(self.loop, self)
        return 0

    cdef int check_runnable(self) except -1:
        if self.queue is None:
            raise RuntimeError(f"{object.__repr__(self)} does not belong to a loop that can run it")
        return 0

    def _run(self):
        # Called by programs that take tasks from loop._ready themselves, maybe inside the step of another task.
        cdef object entered
        self.check_runnable()
        entered = self.queue.entered_task
        self.queue.entered_task = None
        try:
            run_reporting(self, self.loop)
            self.stop_being_current()
        finally:
            self.queue.entered_task = entered

    def _step(self, error=None, /):
        self.step_in_context(error)

    def _wakeup(self, future, /):
        cdef object error = None
        if isinstance(future, Future) and (<Future>future).is_exact():
            error = error_to_throw(future)
        else:
            try:
                future.result()
            except BaseException as raised:
                error = raised
        self.step_in_context(error)

    cdef int step_in_context(self, object error) except -1:
        """Run a step from a handle, which has entered the context."""
        cdef object loop = self.loop
        if self.queue is not None and self.queue.entered_task is self:
            self.stop_being_current()
        tasks._enter_task(loop, self)
        try:
            self.step(error)
        finally:
            tasks._leave_task(loop, self)
        return 0

    cdef int step(self, object error) except -1:
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

    cdef int wait_on(self, object yielded) except -1:
        """The coroutine has yielded: a future to wait for, or None to go on in the next iteration."""
        if yielded is None:
            return self.schedule_step()
        if isinstance(yielded, Future) and (<Future>yielded).is_exact():
            return self.wait_on_future(yielded)
        return self.wait_on_other_object(yielded)

    cdef int wait_on_other_object(self, object yielded) except -1:
        cdef object blocking, text
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

    cdef int wait_on_foreign_future(self, object awaited, object blocking) except -1:
        """A future of a subclass, of asyncio's, or of any class that follows the protocol."""
        get_loop = getattr(awaited, "get_loop", None)
        if self.rejects_awaited(awaited, awaited._loop if get_loop is None else get_loop(), blocking):
            return 0
        awaited._asyncio_future_blocking = False
        awaited.add_done_callback(self._wakeup, context=self.context)
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

    # -- cancelling ----------------------------------------------------------------------------------------------------

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

    def cancel(self, msg=None):
        """Ask the task to cancel itself: CancelledError is raised where it waits. False if it is done already."""
        cdef object awaited
        self.check_initialized()
        self.log_traceback = False
        if self.state != PENDING:
            return False
        cdef object_section section
        section_enter(&section, self)
        self.cancel_requests += 1
        awaited = self.fut_waiter
        section_leave(&section)
        if awaited is not None and awaited.cancel(msg=msg):
            # The cancelled future wakes the task, which may catch the CancelledError.
            return True
        section_enter(&section, self)
        self.must_cancel = True
        self.cancel_message = msg
        section_leave(&section)
        return True

    def cancelling(self):
        """How many cancel requests there were, less the calls of uncancel()."""
        return self.cancel_requests

    def uncancel(self):
        """Take one cancel request back; return how many are left."""
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.cancel_requests > 0:
                self.cancel_requests -= 1
                if uncancel_clears_must_cancel and self.cancel_requests == 0:
                    self.must_cancel = False
            return self.cancel_requests
        finally:
            section_leave(&section)

    # -- attributes and queries ----------------------------------------------------------------------------------------

    def set_result(self, result, /):
        """Not for a task: its result is what the coroutine returns. Raises RuntimeError."""
        raise RuntimeError("Task does not support set_result operation")

    def set_exception(self, exception, /):
        """Not for a task: its exception is what the coroutine raises. Raises RuntimeError."""
        raise RuntimeError("Task does not support set_exception operation")

    def get_coro(self):
        """The coroutine; None if it ended in an eager start."""
        return self.coro

    def get_context(self):
        """The context that the coroutine runs in."""
        return self.context

    def get_name(self):
        """The name given to it, or "Task-<number>"."""
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.name is None:
                self.name = f"Task-{task_number_get(&self.number)}"
            return self.name
        finally:
            section_leave(&section)

    def set_name(self, value, /):
        """Name the task; anything but a string goes through str()."""
        cdef object name = str(value)
        cdef object_section section
        section_enter(&section, self)
        self.name = name
        self.name_in_view = <PyObject *>name
        section_leave(&section)

    def get_stack(self, *, limit=None):
        """The frames of the coroutine, or of the traceback it ended with, oldest first. See asyncio.Task.get_stack."""
        return base_tasks._task_get_stack(self, limit)

    def print_stack(self, *, limit=None, file=None):
        """Print the stack or traceback, to `file` or sys.stderr. See asyncio.Task.print_stack."""
        return base_tasks._task_print_stack(self, limit, file)

    @property
    def _coro(self):
        return self.coro

    @property
    def _context(self):
        return self.context

    @property
    def _name(self):
        return self.get_name()

    @property
    def _fut_waiter(self):
        cdef object_section section
        section_enter(&section, self)
        try:
            return self.fut_waiter
        finally:
            section_leave(&section)

    @property
    def _must_cancel(self):
        return self.must_cancel

    @property
    def _num_cancels_requested(self):
        return self.cancel_requests

    @property
    def _log_destroy_pending(self):
        return self.log_destroy_pending

    @_log_destroy_pending.setter
    def _log_destroy_pending(self, value):
        self.log_destroy_pending = value

    @_log_destroy_pending.deleter
    def _log_destroy_pending(self):
        raise AttributeError("cannot delete attribute")


free_memory_install(<PyTypeObject *>Task)
free_objects_install(<PyTypeObject *>Task, is_spent, empty)
