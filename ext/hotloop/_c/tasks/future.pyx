"""Future: a result that will be there later, and the callbacks and tasks that wait for it.

It has all of asyncio.Future (isinstance() holds), but wakes a waiting Task in another way. The task itself is among the
callbacks, and goes on the ready queue when the future is done: without a Handle, a call or an argument. Nearly every
future has one waiter, so the first is kept in the object.

If the loop is not hotloop's, is in debug mode or has a replaced call_soon(), the future goes through loop.call_soon(),
as asyncio's does.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.runtime.send_slots cimport (
    PYGEN_ERROR,
    PYGEN_NEXT,
    PYGEN_RETURN,
    PySendResult,
    install_send_slots,
    raise_set_error,
    sendfunc,
)
from hotloop._c.scheduler.handles cimport acquire_context, new_handle
from hotloop._c.scheduler.ready_queue cimport (
    FREE_THREADED,
    ReadyQueue,
    Runnable,
    may_queue_directly,
    object_section,
    schedule,
    section_enter,
    section_leave,
)
from hotloop._c.tasks.asyncio_waiters cimport waiting_behind
from hotloop._c.tasks.stop_iteration cimport end_iteration, set_stop_iteration
from hotloop._c.tasks.thrown_exceptions cimport (
    exception_to_throw,
    is_exception,
    is_exception_class,
    replace_stop_iteration,
    set_traceback,
    traceback_of,
)

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_5tasks_6future_Future
    """

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """
    void free_memory_install(PyTypeObject *)
    void free_objects_install(PyTypeObject *, bint (*is_spent)(PyObject *) noexcept, void (*empty)(PyObject *) noexcept)
    PyObject *free_objects_acquire()

import asyncio
import sys
import types
from asyncio import base_futures, events, exceptions, format_helpers

from hotloop._asyncio.classes import assign_class, likeness

cdef object BaseEventLoop = asyncio.BaseEventLoop
cdef object CancelledError = exceptions.CancelledError
cdef object InvalidStateError = exceptions.InvalidStateError
cdef bint rejects_reinit = sys.version_info >= (3, 15)

cdef object awaited_by = None
if sys.version_info >= (3, 14):
    from hotloop._asyncio.awaited_by import awaited_by

# asyncio.Future and asyncio.Task are looked up each time, because some programs replace them.
cdef dict asyncio_names = asyncio.__dict__
cdef object STATE_NAMES = ("PENDING", "CANCELLED", "FINISHED")


cdef ReadyQueue queue_of(object loop):
    """The ready queue of hotloop's loop; None for any other loop, such as one that wraps hotloop's."""
    cdef object queue
    if not issubclass(type(loop), BaseEventLoop):
        return None
    queue = getattr(loop, "_ready", None)
    return queue if isinstance(queue, ReadyQueue) else None


cdef Future new_future(object loop, ReadyQueue queue):
    """A Future as create_future() makes one, outside debug mode."""
    cdef PyObject *kept = free_objects_acquire()
    cdef Future future = Future.__new__(Future) if kept == NULL else <Future>steal(kept)
    future.loop = loop
    future.queue = queue
    return future


cdef bint is_spent(PyObject *future) noexcept:
    """True if report_unretrieved() has nothing to say."""
    return not (<Future>future).log_traceback


cdef void empty(PyObject *future) noexcept:
    empty_future(<Future>future)


cdef void empty_future(Future future) noexcept:
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


cdef extern from *:
    """
    /* Whether comparing it with a function runs no code of the program. */
    static inline int compares_natively(PyObject *callback)
    {
        return Py_TYPE(callback)->tp_richcompare == PyBaseObject_Type.tp_richcompare || PyMethod_Check(callback)
               || PyCFunction_Check(callback);
    }
    """
    bint compares_natively(object) noexcept


cdef class Future(Runnable):
    """A result that will be there later. See asyncio.Future: isinstance() says that this is one."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)

    def __init__(self, *, loop=None):
        self.initialize(loop)

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

    @property
    def __class__(self):
        # isinstance() asks for it if the type itself does not match.
        return asyncio_names["Future"] if type(self) is Future else likeness(type(self), asyncio_names["Future"])

    @__class__.setter
    def __class__(self, value):
        assign_class(self, value)

    @classmethod
    def __class_getitem__(cls, item, /):
        return types.GenericAlias(cls, item)

    def __del__(self):
        self.report_unretrieved()

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

    def __repr__(self):
        return base_futures._future_repr(self)

    cdef int check_initialized(self) except -1:
        if self.loop is None:
            raise RuntimeError("Future object is not initialized.")
        return 0

    cdef bint is_exact(self) noexcept:
        """True if it is not of a subclass, which may override, now or later, what the short cuts bypass."""
        return type(self) is Future

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_loop(self):
        """The event loop that the future is bound to."""
        self.check_initialized()
        return self.loop

    def done(self):
        """True if there is a result or an exception, or if it was cancelled."""
        return state_of(self) != PENDING

    def cancelled(self):
        """True if it was cancelled."""
        return state_of(self) == CANCELLED

    def result(self):
        """The result. Raises the exception that was set, CancelledError, or InvalidStateError if not done."""
        return self.take_result()

    cdef object take_result(self):
        if state_of(self) == FINISHED:
            self.log_traceback = False
            if self.error is None:
                return self.value
            set_traceback(self.error, self.value)
            raise self.error
        if state_of(self) == CANCELLED:
            raise self.make_cancelled_error()
        raise InvalidStateError(self.not_done_message("Result is not set."))

    def exception(self):
        """The exception that was set, or None. Raises CancelledError, or InvalidStateError if not done."""
        if state_of(self) == CANCELLED:
            raise self.make_cancelled_error()
        if state_of(self) == PENDING:
            raise InvalidStateError(self.not_done_message("Exception is not set."))
        self.log_traceback = False
        return self.error

    cdef object not_done_message(self, object pending):
        """The message that says why there is no outcome; `pending`: the one for a pending future."""
        return "Future object is not initialized." if self.loop is None else pending

    cdef object take_error(self):
        """The exception that awaiting this done future raises, with its first traceback; None if it has a result."""
        if state_of(self) == CANCELLED:
            return self.make_cancelled_error()
        self.log_traceback = False
        if self.error is not None:
            # Not error.with_traceback(), which a program may override.
            set_traceback(self.error, self.value)
        return self.error

    def set_result(self, result, /):
        """Set the result and schedule the callbacks. InvalidStateError if done already."""
        self.finish(result)

    cdef int finish(self, object value) except -1:
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

    def set_exception(self, exception, /):
        """Set an exception, or an exception class to instantiate, and schedule the callbacks."""
        self.fail(exception)

    cdef int fail(self, object error) except -1:
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

    def cancel(self, msg=None):
        """Cancel and schedule the callbacks; False if it was done already."""
        return self.set_cancelled(msg)

    cdef bint set_cancelled(self, object message) except -1:
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

    def _make_cancelled_error(self):
        return self.make_cancelled_error()

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

    def add_done_callback(self, fn, /, *, context=None):
        """Call fn(future) soon after the future is done, in `context` (default: a copy of the current one)."""
        self.check_initialized()
        self.add_callback(fn, acquire_context() if context is None else context)

    cdef int add_callback(self, object callback, object context) except -1:
        cdef PyObject *task = waiting_task(waiting_behind(callback))
        cdef object_section section
        section_enter(&section, self)
        if self.state == PENDING and self.first is None and self.others is None:
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

    def remove_done_callback(self, fn, /):
        """Remove all callbacks that equal fn; return their number."""
        self.check_initialized()
        # In asyncio's order: comparing may run code that completes the future, or adds and removes callbacks.
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
        cdef list kept = []
        cdef Py_ssize_t count = len(self.others), index = 0
        cdef object entry
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
        count = len(self.others)
        if len(kept) != count:
            self.others[:] = kept
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
        cdef object_section section
        section_enter(&section, self)
        try:
            if self.first is not None:
                if self.first_context is None:
                    found.append((<Runnable>self.first).done_callback())
                else:
                    found.append((self.first, self.first_context))
            for entry in self.others or ():
                found.append(entry if type(entry) is tuple else (<Runnable>entry).done_callback())
        finally:
            section_leave(&section)
        return found

    cdef int schedule_callbacks(self) except -1:
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
        if may_queue_directly(self.queue, self.loop):
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

    def __await__(self):
        return iterate(self)

    def __iter__(self):
        return iterate(self)

    # -- attributes that asyncio and its tools read and write ----------------------------------------------------------

    @property
    def _asyncio_future_blocking(self):
        return self.blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, value):
        self.check_initialized()
        self.blocking = value

    @_asyncio_future_blocking.deleter
    def _asyncio_future_blocking(self):
        raise AttributeError("cannot delete attribute")

    @property
    def _asyncio_awaited_by(self):
        return None if awaited_by is None else awaited_by(self)

    @property
    def _loop(self):
        return self.loop

    @property
    def _state(self):
        return STATE_NAMES[state_of(self)]

    @property
    def _result(self):
        return self.value if self.error is None else None

    @property
    def _exception(self):
        return self.error if state_of(self) == FINISHED else None

    @property
    def _callbacks(self):
        return self.entries() or None

    @property
    def _source_traceback(self):
        return self.source_traceback

    @property
    def _cancel_message(self):
        cdef object_section section
        section_enter(&section, self)
        try:
            return self.cancel_message
        finally:
            section_leave(&section)

    @_cancel_message.setter
    def _cancel_message(self, value):
        cdef object_section section
        section_enter(&section, self)
        self.cancel_message = value
        section_leave(&section)

    @_cancel_message.deleter
    def _cancel_message(self):
        raise AttributeError("cannot delete attribute")

    @property
    def _log_traceback(self):
        return self.log_traceback

    @_log_traceback.setter
    def _log_traceback(self, value):
        if value:
            raise ValueError("_log_traceback can only be set to False")
        self.log_traceback = False

    @_log_traceback.deleter
    def _log_traceback(self):
        raise AttributeError("cannot delete attribute")


cdef bint entry_equals(object entry, object wanted) except -1:
    """True if an entry, a (callback, context) or a waiting Runnable, has the callback that is to be removed."""
    cdef object callback = (entry if type(entry) is tuple else (<Runnable>entry).done_callback())[0]
    return callback is wanted or callback == wanted


cdef FutureIter iterate(Future future):
    future.check_initialized()
    cdef FutureIter iterator = FutureIter.__new__(FutureIter)
    iterator.future = future
    return iterator


@cython.final
@cython.freelist(128)
cdef class FutureIter:
    """The iterator of `await future`: yields the future once if it is pending, then returns its result."""
    cdef object __weakref__
    cdef Future future      # None: exhausted

    def __iter__(self):
        return self

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value, /):
        """Return the pending future, or raise StopIteration with the result, or the future's exception."""
        cdef PyObject *result = NULL
        if future_iter_resume(<PyObject *>self, NULL, &result) == PYGEN_NEXT:
            return steal(result)
        set_stop_iteration(steal(result))
        raise_set_error()

    def throw(self, kind, value=None, traceback=None, /):
        """Raise an exception where the coroutine waits; the iterator is exhausted afterwards."""
        error = exception_to_throw(kind, value, traceback)
        self.future = None
        raise error

    def close(self):
        """Exhaust the iterator."""
        self.future = None


cdef PySendResult future_iter_resume(PyObject *iterator, PyObject *value, PyObject **result) except PYGEN_ERROR:
    cdef FutureIter self = <FutureIter>iterator
    cdef Future future = self.future
    if future is None:
        raise StopIteration
    if state_of(future) == PENDING:
        if future.blocking:
            raise RuntimeError("await wasn't used with future")
        future.blocking = True
        result[0] = Py_NewRef(future)
        return PYGEN_NEXT
    self.future = None
    if state_of(future) != FINISHED or future.error is not None:
        raise future.take_error()
    result[0] = Py_NewRef(future.value)
    return PYGEN_RETURN


# The am_send slot: the interpreter drives `await` through it without raising StopIteration for every result. An
# exception stays in the error indicator.
cdef sendfunc future_iter_send = <sendfunc>future_iter_resume


cdef PyObject *future_iter_next(PyObject *iterator) noexcept:
    """The tp_iternext slot."""
    cdef PyObject *result = NULL
    if future_iter_send(iterator, NULL, &result) == PYGEN_RETURN:
        end_iteration(steal(result))
        return NULL
    return result


install_send_slots(<PyTypeObject *>FutureIter, future_iter_send, future_iter_next)


free_memory_install(<PyTypeObject *>Future)
free_objects_install(<PyTypeObject *>Future, is_spent, empty)
instance_dict_install(<PyTypeObject *>Future)
