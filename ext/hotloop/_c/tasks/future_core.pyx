"""FutureCore: the outcome of a future, and what waits for it. Future adds the methods that Python calls.

It wakes a waiting Task in another way than asyncio's futures. The task itself is among the callbacks, and goes on the
ready queue when the future is done: without a Handle, a call or an argument. Nearly every future has one waiter, so the
first is kept in the object.

If the loop is not hotloop's, is in debug mode or has a replaced call_soon(), the future goes through loop.call_soon(),
as asyncio's does.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.locking cimport FREE_THREADED, object_section, section_enter, section_leave
from hotloop._c.scheduler.handles cimport new_handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable, may_queue_directly, schedule
from hotloop._c.tasks.asyncio_waiters cimport waiting_behind
from hotloop._c.tasks.thrown_exceptions cimport (
    is_exception,
    is_exception_class,
    replace_stop_iteration,
    set_traceback,
    traceback_of,
)

import asyncio
import sys
from asyncio import events, exceptions, format_helpers

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_5tasks_11future_core_FutureCore

    /* Whether comparing it with a function runs no code of the program. */
    static inline int compares_natively(PyObject *callback)
    {
        return Py_TYPE(callback)->tp_richcompare == PyBaseObject_Type.tp_richcompare || PyMethod_Check(callback)
               || PyCFunction_Check(callback);
    }
    """
    bint compares_natively(object) noexcept

cdef object BaseEventLoop = asyncio.BaseEventLoop
cdef object CancelledError = exceptions.CancelledError
cdef object InvalidStateError = exceptions.InvalidStateError
cdef bint rejects_reinit = sys.version_info >= (3, 15)


cdef class FutureCore(Runnable):
    """The base class of Future."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    cdef bint is_exact(self) noexcept:
        """True if it is not of a subclass, which may override, now or later, what the short cuts bypass."""
        return False

    cdef int initialize(self, object loop) except -1:
        if rejects_reinit and self.loop is not None:
            raise RuntimeError(f"{type(self).__name__} object is already initialized")
        # Reset first: if there is no loop, the future stays uninitialised.
        cdef object_section section
        section_enter(&section, self)
        publish_state(&self.state, PENDING)
        self.blocking = self.log_traceback = False
        self.loop = self.queue = None
        self.value = self.error = self.cancel_message = None
        self.first = self.first_context = self.others = self.source_traceback = None
        self.awaited_by = NULL
        section_leave(&section)
        if loop is None:
            loop = events.get_event_loop()
        self.loop = loop
        self.queue = queue_of(loop)
        if loop.get_debug():
            self.source_traceback = format_helpers.extract_stack(sys._getframe())
        return 0

    cdef int check_initialized(self) except -1:
        if self.loop is None:
            raise RuntimeError("Future object is not initialized.")
        return 0

    cdef int report_unretrieved(self) except -1:
        if not self.log_traceback or self.error is None:
            return 0
        self.log_traceback = False
        context = {
            "message": f"{type(self).__name__} exception was never retrieved",
            "exception": self.error,
            "future": self,
        }
        if self.source_traceback:
            context["source_traceback"] = self.source_traceback
        self.loop.call_exception_handler(context)
        return 0

    # -- the outcome ---------------------------------------------------------------------------------------------------

    cdef object take_result(self):
        """The result. Raises the exception that was set, CancelledError, or InvalidStateError if not done."""
        if state_of(self) == FINISHED:
            self.log_traceback = False
            if self.error is None:
                return self.value
            set_traceback(self.error, self.value)
            raise self.error
        if state_of(self) == CANCELLED:
            raise self.make_cancelled_error()
        raise InvalidStateError(self.not_done_message("Result is not set."))

    cdef object take_error(self):
        """The exception that awaiting this done future raises, with its first traceback; None if it has a result."""
        if state_of(self) == CANCELLED:
            return self.make_cancelled_error()
        self.log_traceback = False
        if self.error is not None:
            # Not error.with_traceback(), which a program may override.
            set_traceback(self.error, self.value)
        return self.error

    cdef object not_done_message(self, object pending):
        """The message that says why there is no outcome; `pending`: the one for a pending future."""
        return "Future object is not initialized." if self.loop is None else pending

    cdef int finish(self, object value) except -1:
        """Set the result, and queue what waits for it. InvalidStateError if done."""
        cdef object_section section
        self.check_initialized()
        section_enter(&section, self)
        if self.state != PENDING:
            section_leave(&section)
            raise InvalidStateError("invalid state")
        self.value = value
        publish_state(&self.state, FINISHED)
        section_leave(&section)
        return self.schedule_callbacks()

    cdef int fail(self, object error) except -1:
        """Set an exception, or an instance of an exception class, and queue what waits for it. InvalidStateError if
        done, TypeError for anything else."""
        cdef object_section section
        self.check_initialized()
        if self.state != PENDING:
            raise InvalidStateError("invalid state")
        # Check what the object is, not what it says it is, because it will be raised.
        if is_exception_class(error):
            error = error()
            if self.state != PENDING:
                raise InvalidStateError("invalid state")
        if not is_exception(error):
            raise TypeError("invalid exception object")
        error = replace_stop_iteration(error)
        section_enter(&section, self)
        if FREE_THREADED and self.state != PENDING:
            section_leave(&section)
            raise InvalidStateError("invalid state")
        self.error = error
        self.value = traceback_of(error)
        publish_state(&self.state, FINISHED)
        section_leave(&section)
        self.schedule_callbacks()
        self.log_traceback = True
        return 0

    cdef bint set_cancelled(self, object message) except -1:
        """Cancel, and queue what waits for the outcome. False if done already."""
        cdef object_section section
        self.check_initialized()
        self.log_traceback = False
        section_enter(&section, self)
        if self.state != PENDING:
            section_leave(&section)
            return False
        publish_state(&self.state, CANCELLED)
        self.cancel_message = message
        section_leave(&section)
        self.schedule_callbacks()
        return True

    cdef object make_cancelled_error(self):
        cdef object error, message = None
        cdef object_section section
        section_enter(&section, self)
        error = self.error if state_of(self) == CANCELLED else None
        if error is not None:
            # Returned only once, because it refers to frames, and this future may be among their locals.
            self.error = None
            section_leave(&section)
            return error
        message = self.cancel_message
        section_leave(&section)
        if message is None:
            return CancelledError()
        return CancelledError(message)

    # -- callbacks and waiters -----------------------------------------------------------------------------------------

    cdef int add_callback(self, object callback, object context) except -1:
        """Call `callback` in `context` when done; soon, if the future is done already."""
        cdef PyObject *task = waiting_task(waiting_behind(callback))
        cdef object_section section
        section_enter(&section, self)
        # None can be added, and fails when it is called, but in `first` it stands for no callback. A task that was not
        # initialised has None for a context, which in `first_context` stands for a Runnable.
        if (
            self.state == PENDING
            and self.first is None
            and self.others is None
            and callback is not None
            and context is not None
        ):
            self.first = callback
            self.first_context = context
            self.awaited_by = task
            section_leave(&section)
            return 0
        section_leave(&section)
        if state_of(self) != PENDING or not self.append_entry((callback, context)):
            return self.schedule_callback(callback, context)
        return 0

    cdef int wait_for(self, Runnable waiter, PyObject *task) except -1:
        """Queue `waiter` when done: add_done_callback() for a task of the same loop. `task` then goes on, and `waiter`
        holds a reference to it; NULL: no task is known."""
        cdef object_section section
        section_enter(&section, self)
        if self.state == PENDING and self.first is None and self.others is None:
            self.first = waiter
            self.awaited_by = task
            section_leave(&section)
            return 0
        section_leave(&section)
        if state_of(self) != PENDING or not self.append_entry(waiter):
            return self.schedule_waiter(waiter)
        return 0

    cdef bint append_entry(self, object entry) except -1:
        """Append to `others`. False if the future is done by now: an allocation may run the garbage collector, and thus
        any code."""
        cdef list made
        cdef object_section section
        section_enter(&section, self)
        try:
            while self.others is None:
                made = []
                if self.others is None:
                    self.others = made
            if self.state != PENDING:
                if not FREE_THREADED or not self.others:
                    # Else another thread has just completed the future, and is about to take them.
                    self.others = None
                return False
            self.others.append(entry)
        finally:
            section_leave(&section)
        return True

    cdef Py_ssize_t remove_callbacks(self, object fn) except? -1:
        """Remove all that equal fn; return their number. In asyncio's order: comparing may run code that completes the
        future, or adds and removes callbacks."""
        cdef Py_ssize_t removed = 0
        cdef object first, _dropped, _context
        cdef object_section section
        section_enter(&section, self)
        try:
            first = self.first
            if first is not None and entry_equals(first if self.first_context is None else (first, None), fn):
                # Maybe another one by now. Kept to the end: its finalizer may add a callback, which needs both fields.
                _dropped = self.first
                _context = self.first_context
                self.first = self.first_context = None
                self.awaited_by = NULL
                removed = 1
            return removed if self.others is None else removed + self.remove_others(fn)
        finally:
            section_leave(&section)

    cdef Py_ssize_t remove_others(self, object fn) except? -1:
        cdef list kept = [], others
        cdef Py_ssize_t count, index = 0
        cdef object entry
        if self.others is None:
            # Making a list may run the garbage collector, and thus code that completes the future.
            return 0
        count = len(self.others)
        if count == 1:
            if not entry_equals(self.others[0], fn):
                return 0
            self.others = None
            return 1
        while self.others is not None and index < len(self.others):
            entry = self.others[index]
            index += 1
            if not entry_equals(entry, fn):
                kept.append(entry)
        if not kept or self.others is None:
            self.others = None
            return count
        others = self.others
        count = len(others)
        if len(kept) != count:
            # Of the list that is kept here, because making a slice may run the collector, too.
            others[:] = kept
        return count - len(kept)

    cdef bint stop_waiting(self, Runnable waiter) except -1:
        """remove_done_callback() for what wait_for() has added. False if that may run any code: nothing was done."""
        cdef Py_ssize_t index
        cdef list others
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.first_context is not None and not compares_natively(self.first):
                return False
            others = self.others
            if others is not None:
                for entry in others:
                    if type(entry) is tuple and not compares_natively((<tuple>entry)[0]):
                        return False
            if self.first is waiter:
                self.first = None
                self.awaited_by = NULL
            elif others is not None:
                for index in range(len(others)):
                    if others[index] is waiter:
                        del others[index]
                        break
                if not others:
                    self.others = None
        finally:
            section_leave(&section)
        return True

    cdef list entries(self):
        """All callbacks and waiters, as a list of (callback, context)."""
        cdef list found = []
        cdef object first
        cdef object_section section
        section_enter(&section, self)
        try:
            # Kept, because making a tuple may run the garbage collector, and thus code that completes the future.
            first = self.first
            if first is not None:
                if self.first_context is None:
                    found.append((<Runnable>first).done_callback())
                else:
                    found.append((first, self.first_context))
            for entry in self.others or ():
                found.append(entry if type(entry) is tuple else (<Runnable>entry).done_callback())
        finally:
            section_leave(&section)
        return found

    cdef int schedule_callbacks(self) except -1:
        """The future is done: queue its callbacks and waiters."""
        cdef object first
        cdef object_section section
        section_enter(&section, self)
        if self.first_context is not None or self.others is not None:
            section_leave(&section)
            return self.schedule_several()
        if self.first is None:
            section_leave(&section)
            return 0
        first = self.first
        self.first = None
        self.awaited_by = NULL
        section_leave(&section)
        return self.schedule_waiter(first)

    cdef int schedule_several(self) except -1:
        """schedule_callbacks() for any number of callbacks; most futures have one waiting task and nothing else."""
        cdef object first, context
        cdef list others
        cdef object_section section
        section_enter(&section, self)
        first = self.first
        context = self.first_context
        others = self.others
        self.first = self.first_context = self.others = None
        self.awaited_by = NULL
        section_leave(&section)
        if context is not None:
            self.schedule_callback(first, context)
        elif first is not None:
            self.schedule_waiter(first)
        if others is not None:
            for entry in others:
                if type(entry) is tuple:
                    self.schedule_callback(entry[0], entry[1])
                else:
                    self.schedule_waiter(entry)
        return 0

    cdef int schedule_waiter(self, Runnable waiter) except -1:
        cdef tuple callback
        if self.queue is not None and may_queue_directly(self.queue, self.loop):
            return schedule(self.queue, waiter)
        # Since the waiter was added, call_soon() was replaced or debug mode set.
        callback = waiter.done_callback()
        return self.schedule_callback(callback[0], callback[1])

    cdef int schedule_callback(self, object callback, object context) except -1:
        if self.queue is not None and may_queue_directly(self.queue, self.loop):
            schedule(self.queue, new_handle(callback, (self,), self.loop, context))
        else:
            self.loop.call_soon(callback, self, context=context)
        return 0


cdef bint entry_equals(object entry, object wanted) except -1:
    """True if an entry, a (callback, context) or a waiting Runnable, has the callback that is to be removed."""
    cdef object callback = (entry if type(entry) is tuple else (<Runnable>entry).done_callback())[0]
    return callback is wanted or callback == wanted


cdef void empty_future(FutureCore future) noexcept:
    """Make it what it was before it was bound to a loop. Most of its attributes were never set."""
    instance_dict_clear(future)
    future.state = PENDING
    future.blocking = False
    if future.value is not None:
        future.value = None
    if future.error is not None:
        future.error = None
    if future.cancel_message is not None:
        future.cancel_message = None
    if future.first is not None:
        future.first = future.first_context = None
        future.awaited_by = NULL
    if future.others is not None:
        # Also without a first one: that one was removed.
        future.others = None
    if future.source_traceback is not None:
        future.source_traceback = None
    future.queue = None
    future.loop = None


cdef ReadyQueue queue_of(object loop):
    """The ready queue of hotloop's loop; None for any other loop, such as one that wraps hotloop's."""
    cdef object queue
    if not issubclass(type(loop), BaseEventLoop):
        return None
    queue = getattr(loop, "_ready", None)
    return queue if isinstance(queue, ReadyQueue) else None


instance_dict_install(<PyTypeObject *>FutureCore)
