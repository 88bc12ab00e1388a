"""Task: asyncio.Task with its methods, compiled (isinstance() holds): a future that runs a coroutine.

Its steps are in task_core.pyx. asyncio.all_tasks() sees these tasks because they are on asyncio's own list
(asyncio_layout.pyx), or else through hotloop._asyncio.task_registry, asyncio.current_task() through current_task.pyx.
"""

cimport cython
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    object_section,
    section_enter,
    section_leave,
    shared_count,
    shared_next,
)
from hotloop._c.runtime.recycling cimport free_memory_install, free_objects_acquire, free_objects_install
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.handles cimport acquire_context, release_context
from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.asyncio_layout cimport find_asyncios_list, view_offsets
from hotloop._c.tasks.current_task cimport swap_task
from hotloop._c.tasks.future_core cimport PENDING, empty_future
from hotloop._c.tasks.task_core cimport TaskCore

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """

import asyncio
import sys
from asyncio import base_tasks, coroutines, events, tasks

from hotloop._asyncio import task_registry
from hotloop._asyncio.classes import assign_class, likeness

cdef bint uncancel_clears_must_cancel = sys.version_info >= (3, 13)
cdef bint checks_context = sys.version_info >= (3, 15)
cdef bint takes_eager_start = sys.version_info >= (3, 12)
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
    list list_live_tasks(size_t)
    void join_asyncios_list(int word)

cdef extern from "tasks/tasks_in_view.h":
    void unlink_task(task_link *)
    void task_number_init(task_number *) noexcept
    void task_number_set(task_number *, unsigned long long) noexcept
    unsigned long long task_number_get(task_number *) noexcept

cdef extern from *:
    """
    #define TASK struct __pyx_obj_7hotloop_2_c_5tasks_9task_core_TaskCore
    #define FUTURE struct __pyx_obj_7hotloop_2_c_5tasks_11future_core_FutureCore
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


cdef class Task(TaskCore):
    """Task(coro, *, loop=None, name=None, context=None, eager_start=False)\n--\n
    A coroutine that runs in an event loop. See asyncio.Task: isinstance() says that this is one."""

    def __cinit__(self, *args, **kwargs):
        self.is_task = True
        task_number_init(&self.number)

    def __init__(self, coro, *, loop=None, name=None, context=None, eager_start=False):
        if eager_start and not takes_eager_start:
            raise TypeError("'eager_start' is an invalid keyword argument for Task()")
        self.initialize(loop)
        self.prepare(coro, name, context)
        if eager_start and self.loop.is_running():
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
        cdef bint listed = self.link.previous != NULL or not all_tasks_reads_list
        # First, so that all_tasks() does not show a half-cleared task, as weak references would not.
        unlink_task(&self.link)
        try:
            if self.state == PENDING and self.log_destroy_pending and self.loop is not None:
                self.report_pending()
            self.report_unretrieved()
        finally:
            if listed and self.state == PENDING and Py_REFCNT(<PyObject *>self) > references:
                # The exception handler has kept a reference: the task lives on.
                if references == 1 or lists_resurrected_tasks:
                    self.register()

    cdef int report_pending(self) except -1:
        context = {"message": "Task was destroyed but it is pending!", "task": self}
        if self.source_traceback:
            context["source_traceback"] = self.source_traceback
        self.loop.call_exception_handler(context)
        return 0

    def __repr__(self):
        return base_tasks._task_repr(self)

    # -- beginning -----------------------------------------------------------------------------------------------------

    cdef int prepare(self, object coro, object name, object context) except -1:
        """Give a task its coroutine, its name (None: "Task-<number>"), and its context (None: a copy of the current
        one). TypeError if the first is no coroutine, and from Python 3.15 on if the last is no Context."""
        if not PyCoro_CheckExact(coro) and not coroutines.iscoroutine(coro):
            # There is no coroutine that could be "destroyed but pending".
            self.log_destroy_pending = False
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if context is None:
            self.context = acquire_context()
        elif checks_context and not PyContext_CheckExact(context):
            self.log_destroy_pending = False
            raise TypeError(f"a contextvars.Context was expected, got {type(context).__name__}")
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
        except BaseException:
            # The caller hears of it, and gets no task.
            self.log_destroy_pending = False
            raise
        finally:
            swap_task(self.loop, before)
            if self.queue is not None:
                self.queue.entered_task = entered
            if self.state == PENDING:
                self.register()
            else:
                self.coro_in_view = NULL
                self.set_coroutine(None)
        return 0

    cdef int set_coroutine(self, object coro) except -1:
        """Another thread may be asking for it."""
        with cython.critical_section(self):
            self.coro, coro = coro, self.coro
        return 0

    # -- cancelling ----------------------------------------------------------------------------------------------------

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
        with cython.critical_section(self):
            if self.cancel_requests > 0:
                self.cancel_requests -= 1
                if uncancel_clears_must_cancel and self.cancel_requests == 0:
                    self.must_cancel = False
            return self.cancel_requests

    # -- attributes and queries ----------------------------------------------------------------------------------------

    def set_result(self, result, /):
        """Not for a task: its result is what the coroutine returns. Raises RuntimeError."""
        raise RuntimeError("Task does not support set_result operation")

    def set_exception(self, exception, /):
        """Not for a task: its exception is what the coroutine raises. Raises RuntimeError."""
        raise RuntimeError("Task does not support set_exception operation")

    def get_coro(self):
        """The coroutine; None if it ended in an eager start."""
        with cython.critical_section(self):
            return self.coro

    def get_context(self):
        """The context that the coroutine runs in."""
        return self.context

    def get_name(self):
        """The name given to it, or "Task-<number>"."""
        with cython.critical_section(self):
            if self.name is None:
                self.name = f"Task-{task_number_get(&self.number)}"
            return self.name

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
        with cython.critical_section(self):
            return self.coro

    @_coro.setter
    def _coro(self, value):
        # greenback puts a coroutine of its own in front of the task's.
        # In view first: a tool must not find the old one, which may be freed by then.
        self.coro_in_view = <PyObject *>value if PyCoro_CheckExact(value) else NULL
        self.set_coroutine(value)

    @property
    def _context(self):
        return self.context

    @property
    def _name(self):
        return self.get_name()

    @property
    def _fut_waiter(self):
        with cython.critical_section(self):
            return self.fut_waiter

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
