"""Future: a result that is not there yet.

A complete replacement of asyncio.Future. It does not inherit from it, but `isinstance(future, asyncio.Future)` holds,
and tasks of either kind await futures of the other. Where the versions of Python differ, it follows the running one.
"""

import asyncio
import sys
from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from types import GenericAlias
from typing import Any

from hotloop._asyncio.awaited_by import awaited_by
from hotloop._asyncio.classes import assign_class, likeness
from hotloop._asyncio.internals import base_futures, events, format_helpers

_PENDING = "PENDING"
_CANCELLED = "CANCELLED"
_FINISHED = "FINISHED"
_UNINITIALIZED = "Future object is not initialized."

_Entry = tuple[Callable[[Any], object], Context]  # a callback, and the context that it is called in

# The base class's own accessors, whatever an exception's class overrides: asyncio's futures use them in C.
_traceback_of: Any = BaseException.__dict__["__traceback__"].__get__
_with_traceback = BaseException.with_traceback


class Future:
    """A result or an exception that will be set, and the callbacks that are called then. See asyncio.Future.

    Not thread-safe. Callbacks are called through the loop's call_soon().
    """

    # Defaults of the instances' attributes: a new Future sets only what differs.
    _state = _PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _exception_tb: Any = None
    _loop: Any = None
    _source_traceback: Any = None  # where the future was created; in debug mode only
    _cancel_message: Any = None
    _cancelled_exc: CancelledError | None = None  # the one that ended a task's coroutine; result() raises it once

    # asyncio takes an object for a future if its class has this attribute and it is not None. It is True from when
    # __await__() yields the future until the task sees it: so a task can tell `await` from `yield`.
    _asyncio_future_blocking = False

    # As in asyncio's C code: once the first callback is removed, none takes its place while there are others.
    __first: _Entry | None = None
    __others: list[_Entry] | None = None
    __log_traceback = False  # an exception was set and has not been retrieved yet

    @property
    def __class__(self) -> type:
        return asyncio.Future if type(self) is Future else likeness(type(self), asyncio.Future)

    @__class__.setter
    def __class__(self, value: type) -> None:
        assign_class(self, value)

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, *, loop: Any = None) -> None:
        if sys.version_info >= (3, 15) and self._loop is not None:
            raise RuntimeError(f"{type(self).__name__} object is already initialized")
        if self._loop is not None:
            # Called again: up to Python 3.14 this resets the future.
            for name in _STATE:
                self.__dict__.pop(name, None)
        self._loop = loop = events.get_event_loop() if loop is None else loop
        if loop.get_debug():
            self._source_traceback = format_helpers.extract_stack(sys._getframe(1))

    def __repr__(self) -> str:
        return str(base_futures._future_repr(self))

    def __del__(self) -> None:
        if not self.__log_traceback:
            return
        context = {
            "message": f"{type(self).__name__} exception was never retrieved",
            "exception": self._exception,
            "future": self,
        }
        if self._source_traceback:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __delattr__(self, name: str) -> None:
        if name in vars(Future):
            raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} objects cannot be deleted")
        object.__delattr__(self, name)

    @property
    def _callbacks(self) -> list[_Entry] | None:
        """A list of the callbacks, each with its context; None if there are none."""
        first = [] if self.__first is None else [self.__first]
        return first + (self.__others or []) or None

    @property
    def _log_traceback(self) -> bool:
        return self.__log_traceback

    @_log_traceback.setter
    def _log_traceback(self, value: bool) -> None:
        if value:
            raise ValueError("_log_traceback can only be set to False")
        self.__log_traceback = False

    if sys.version_info >= (3, 14):

        @property
        def _asyncio_awaited_by(self) -> set[Any] | None:
            return awaited_by(self)

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_loop(self) -> Any:
        """Return the event loop that the future is bound to."""
        self._check_initialized()
        return self._loop

    def done(self) -> bool:
        """Return True if a result or an exception was set, or the future was cancelled."""
        return self._state != _PENDING

    def cancelled(self) -> bool:
        """Return True if the future was cancelled."""
        return self._state == _CANCELLED

    def result(self) -> Any:
        """Return the result.

        Raises the exception that was set, CancelledError if the future was cancelled, InvalidStateError if it is
        pending."""
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _FINISHED:
            raise InvalidStateError("Result is not set." if self._loop is not None else _UNINITIALIZED)
        self.__log_traceback = False
        if self._exception is None:
            return self._result
        try:
            # Start from the traceback that the exception came with; otherwise it would grow with every await.
            raise _with_traceback(self._exception, self._exception_tb)
        finally:
            # The traceback holds this frame; holding the future, and through it the exception, would make a cycle.
            del self

    def exception(self) -> BaseException | None:
        """Return the exception that was set, or None.

        Raises CancelledError if the future was cancelled, InvalidStateError if it is pending."""
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _FINISHED:
            raise InvalidStateError("Exception is not set." if self._loop is not None else _UNINITIALIZED)
        self.__log_traceback = False
        return self._exception

    def set_result(self, result: Any) -> None:
        """Finish with a result. Raises InvalidStateError if the future is done."""
        self._check_pending()
        self._result = result
        self._state = _FINISHED
        self.__schedule_callbacks()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        """Finish with an exception, an instance or a class. Raises InvalidStateError if the future is done.

        StopIteration would end the awaiting coroutine. Up to Python 3.12 it raises TypeError; from 3.13 on it is
        replaced by a RuntimeError whose cause it is."""
        self._check_pending()
        if isinstance(exception, type) and issubclass(exception, BaseException):
            exception = exception()
            self._check_pending()
        if not issubclass(type(exception), BaseException):
            raise TypeError("invalid exception object")
        exception = _instead_of_stop_iteration(exception)
        self._exception = exception
        self._exception_tb = _traceback_of(exception)
        self._state = _FINISHED
        self.__schedule_callbacks()
        self.__log_traceback = True

    def cancel(self, msg: Any = None) -> bool:
        """Cancel, with `msg` as the argument of the CancelledError. Returns False if the future is done."""
        self._check_initialized()
        self.__log_traceback = False
        if self._state != _PENDING:
            return False
        self._state = _CANCELLED
        self._cancel_message = msg
        self.__schedule_callbacks()
        return True

    def _make_cancelled_error(self) -> CancelledError:
        """The CancelledError to raise: first the one that ended a task's coroutine, then new ones."""
        error = self._cancelled_exc
        if error is not None:
            self._cancelled_exc = None
            return error
        return CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Have `fn(future)` called by the loop, in `context` or a copy of the current one, once the future is done."""
        self._check_initialized()
        if self._state != _PENDING:
            self._loop.call_soon(fn, self, context=context)
            return
        entry = (fn, copy_context() if context is None else context)
        if self.__others is not None:
            self.__others.append(entry)
        elif self.__first is not None:
            self.__others = [entry]
        else:
            self.__first = entry

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove every callback that equals `fn`; return how many there were."""
        self._check_initialized()
        # Comparing may run code that ends the future or changes its callbacks. The count is then the same as asyncio's.
        # So may a finalizer between any two steps.
        removed = 0
        first = self.__first
        if first is not None and _is_or_equals(first[0], fn):
            self.__first = None
            removed = 1
        others = self.__others
        return removed if others is None else removed + self.__remove_others(others, fn)

    def __remove_others(self, others: list[_Entry], fn: Callable[[Any], object]) -> int:
        count = len(others)
        if count == 1:
            if not _is_or_equals(others[0][0], fn):
                return 0
            self.__others = None
            return 1
        kept: list[_Entry] = []
        index = 0
        while (present := self.__others) is not None:
            try:
                entry = present[index]
            except IndexError:
                break
            index += 1
            if not _is_or_equals(entry[0], fn):
                kept.append(entry)
        if not kept or present is None:
            self.__others = None
            return count
        count = len(present)
        present[:] = kept
        return count - len(kept)

    def __schedule_callbacks(self) -> None:
        callbacks = self._callbacks
        if callbacks is None:
            return
        self.__first = self.__others = None
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)

    # -- awaiting ------------------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            if self._state == _PENDING:
                self._check_initialized()
                self._asyncio_future_blocking = True
                yield self
            if self._state == _PENDING:
                raise RuntimeError("await wasn't used with future")
            return self.result()
        finally:
            # As in result(): an exception that is thrown in here is the future's own.
            del self

    __iter__ = __await__  # for `yield from`

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_initialized(self) -> None:
        if self._loop is None:
            raise RuntimeError(_UNINITIALIZED)

    def _check_pending(self) -> None:
        self._check_initialized()
        if self._state != _PENDING:
            raise InvalidStateError(f"{self._state}: {self!r}")


def _is_or_equals(callback: object, wanted: object) -> bool:
    return callback is wanted or bool(callback == wanted)


def _instead_of_stop_iteration(exception: BaseException) -> BaseException:
    """The exception itself, unless it would end the awaiting coroutine."""
    message = "StopIteration interacts badly with generators and cannot be raised into a Future"
    if sys.version_info < (3, 13):
        if type(exception) is StopIteration:
            raise TypeError(message)
    elif issubclass(type(exception), StopIteration):
        error = RuntimeError(message)
        error.__cause__ = exception
        error.__context__ = exception
        return error
    return exception


# The attributes that an instance may set over the defaults of the class.
_STATE = (
    "_state",
    "_result",
    "_exception",
    "_exception_tb",
    "_loop",
    "_source_traceback",
    "_cancel_message",
    "_cancelled_exc",
    "_asyncio_future_blocking",
    "_Future__first",
    "_Future__others",
    "_Future__log_traceback",
)
