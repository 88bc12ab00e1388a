"""Future: asyncio.Future with its methods, compiled (isinstance() holds), and the iterator of `await future`.

How it keeps its outcome and wakes what waits for it is in future_core.pyx.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.runtime.recycling cimport free_memory_install, free_objects_acquire, free_objects_install
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
from hotloop._c.scheduler.handles cimport acquire_context
from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.future_core cimport CANCELLED, FINISHED, PENDING, FutureCore, empty_future, state_of
from hotloop._c.tasks.stop_iteration cimport end_iteration, set_stop_iteration
from hotloop._c.tasks.thrown_exceptions cimport exception_to_throw

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """

cdef extern from "runtime/error_indicator.h":
    int set_error_again(object) except -1

import asyncio
import sys
import types
from asyncio import base_futures, exceptions

from hotloop._asyncio.classes import assign_class, likeness

cdef object InvalidStateError = exceptions.InvalidStateError

cdef object awaited_by = None
if sys.version_info >= (3, 14):
    from hotloop._asyncio.awaited_by import awaited_by

# asyncio.Future and asyncio.Task are looked up each time, because some programs replace them.
cdef dict asyncio_names = asyncio.__dict__
cdef object STATE_NAMES = ("PENDING", "CANCELLED", "FINISHED")


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


cdef class Future(FutureCore):
    """Future(*, loop=None)\n--\n
    A result that will be there later. See asyncio.Future: isinstance() says that this is one."""

    def __init__(self, *, loop=None):
        self.initialize(loop)

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

    def __repr__(self):
        return base_futures._future_repr(self)

    cdef bint is_exact(self) noexcept:
        return type(self) is Future

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

    def exception(self):
        """The exception that was set, or None. Raises CancelledError, or InvalidStateError if not done."""
        if state_of(self) == CANCELLED:
            raise self.make_cancelled_error()
        if state_of(self) == PENDING:
            raise InvalidStateError(self.not_done_message("Exception is not set."))
        self.log_traceback = False
        return self.error

    def set_result(self, result, /):
        """Set the result and schedule the callbacks. InvalidStateError if done already."""
        self.finish(result)

    def set_exception(self, exception, /):
        """Set an exception, or an exception class to instantiate, and schedule the callbacks. InvalidStateError if done
        already, TypeError if it is neither.

        StopIteration would end the awaiting coroutine. Up to Python 3.12 it raises TypeError; from 3.13 on it is
        replaced by a RuntimeError whose cause it is."""
        self.fail(exception)

    def cancel(self, msg=None):
        """Cancel and schedule the callbacks; False if it was done already."""
        return self.set_cancelled(msg)

    def _make_cancelled_error(self):
        return self.make_cancelled_error()

    # -- callbacks and waiters -----------------------------------------------------------------------------------------

    def add_done_callback(self, fn, /, *, context=None):
        """Call fn(future) soon after the future is done, in `context` (default: a copy of the current one)."""
        self.check_initialized()
        self.add_callback(fn, acquire_context() if context is None else context)

    def remove_done_callback(self, fn, /):
        """Remove all callbacks that equal fn; return their number."""
        self.check_initialized()
        return self.remove_callbacks(fn)

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
        with cython.critical_section(self):
            return self.cancel_message

    @_cancel_message.setter
    def _cancel_message(self, value):
        with cython.critical_section(self):
            # The earlier one is dropped on return: its finalizer may run any code.
            self.cancel_message, value = value, self.cancel_message

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


cdef FutureIter iterate(Future future):
    future.check_initialized()
    cdef FutureIter iterator = FutureIter.__new__(FutureIter)
    iterator.future = future
    return iterator


cdef extern from *:
    """
    /* Cython makes the table that am_send stands in only for a class with __await__(). */
    static inline void give_async_slots(PyTypeObject *type)
    {
        static PyAsyncMethods slots;

        type->tp_as_async = &slots;
    }
    """
    void give_async_slots(PyTypeObject *)


@cython.final
@cython.freelist(128)
cdef class FutureIter:
    """The iterator of `await future`: yields the future once if it is pending, then returns its result."""
    cdef object __weakref__
    cdef Future future      # None: exhausted

    # No __await__(), as in asyncio: with it this would be a collections.abc.Coroutine, and asyncio.iscoroutine() true.
    def __iter__(self):
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
        # Not `raise`: that would make what a caller of the coroutine handles the exception's context.
        set_error_again(error)

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


give_async_slots(<PyTypeObject *>FutureIter)
install_send_slots(<PyTypeObject *>FutureIter, future_iter_send, future_iter_next)


free_memory_install(<PyTypeObject *>Future)
free_objects_install(<PyTypeObject *>Future, is_spent, empty)
