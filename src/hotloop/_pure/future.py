"""Future: a result that is not there yet.

A complete replacement of asyncio.Future, which it does not inherit from: `isinstance(future, asyncio.Future)` holds all
the same, and each is awaited by the other's tasks. Where the versions of Python differ, it follows the running one.
"""

import asyncio
import sys
from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from types import GenericAlias
from typing import Any

from hotloop._awaited_by import awaited_by
from hotloop._pure.stdlib import base_futures, events, format_helpers

_PENDING = "PENDING"
_CANCELLED = "CANCELLED"
_FINISHED = "FINISHED"


def asyncio_class(cls: type, ours: type, counterpart: type) -> type:
    """The `__class__` of an instance of `cls`, which is `ours` or a subclass: isinstance() then takes it for a
    `counterpart`, too.

    For our own class that is the counterpart itself. Code in a subclass uses `self.__class__` to get at its own name
    and class attributes; so a subclass has a class that is both, made once and kept on it.
    """
    if cls is ours:
        return counterpart
    known: type | None = cls.__dict__.get("_asyncio_class")
    if known is None:
        try:
            known = type(cls)(cls.__name__, (cls, counterpart), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        except TypeError:
            # A subclass with __slots__ cannot share a layout with asyncio's.
            known = counterpart
        cls._asyncio_class = known  # type: ignore[attr-defined]
    return known


class Future:
    """A result that will be set, or an exception, and the callbacks to be called then. See asyncio.Future.

    Not thread-safe. Callbacks are called through the loop's call_soon().
    """

    # Defaults of the instances' attributes: a new Future sets only what differs.
    _state = _PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _exception_tb: Any = None
    _loop: Any = None
    _source_traceback: Any = None  # of the creation, in debug mode
    _cancel_message: Any = None
    _cancelled_exc: CancelledError | None = None  # what a task's coroutine was left with, to be raised by result() once

    # That a class has this attribute, and not None in it, is what declares it a future. True between the moment that
    # __await__() hands the future to a task and the moment that the task sees it: a task can tell `await` from `yield`.
    _asyncio_future_blocking = False

    __callbacks: list[tuple[Callable[[Any], object], Context]] | None = None  # None: there are none
    __log_traceback = False  # an exception was set that nobody has asked for yet

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return asyncio_class(type(self), Future, asyncio.Future)

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, *, loop: Any = None) -> None:
        if sys.version_info >= (3, 15) and self._loop is not None:
            raise RuntimeError(f"{type(self).__name__} object is already initialized")
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

    def __delattr__(self, name: str) -> None:
        if name in vars(Future):
            raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} objects cannot be deleted")
        object.__delattr__(self, name)

    @property
    def _callbacks(self) -> list[tuple[Callable[[Any], object], Context]] | None:
        """A copy of the list of callbacks, each with its context; None if there are none."""
        return self.__callbacks and self.__callbacks.copy()

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
        """The event loop this future is bound to."""
        self._check_initialized()
        return self._loop

    def done(self) -> bool:
        """True if a result or an exception was set, or the future was cancelled."""
        return self._state != _PENDING

    def cancelled(self) -> bool:
        """True if the future was cancelled."""
        return self._state == _CANCELLED

    def result(self) -> Any:
        """The result.

        Raises the exception that was set, CancelledError if the future was cancelled, InvalidStateError if it is
        pending."""
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _FINISHED:
            raise InvalidStateError("Result is not set.")
        self.__log_traceback = False
        if self._exception is None:
            return self._result
        try:
            # Each await starts from the traceback that the exception came with, or it would grow with every one.
            raise self._exception.with_traceback(self._exception_tb)
        finally:
            # The traceback holds this frame, which must not hold the future and so the exception again.
            del self

    def exception(self) -> BaseException | None:
        """The exception that was set, or None.

        Raises CancelledError if the future was cancelled, InvalidStateError if it is pending."""
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        if self._state != _FINISHED:
            raise InvalidStateError("Exception is not set.")
        self.__log_traceback = False
        return self._exception

    def set_result(self, result: Any) -> None:
        """Finish with a result. InvalidStateError if the future is done."""
        self._check_pending()
        self._result = result
        self._state = _FINISHED
        self.__schedule_callbacks()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        """Finish with an exception, an instance or a class. InvalidStateError if the future is done.

        StopIteration would end the coroutine that awaits: up to Python 3.12 it is a TypeError, from 3.13 on it is
        replaced by a RuntimeError with it as the cause."""
        self._check_pending()
        if isinstance(exception, type):
            exception = exception()
        if not isinstance(exception, BaseException):
            raise TypeError("invalid exception object")
        if isinstance(exception, StopIteration):
            exception = _replaced_stop_iteration(exception)
        self._exception = exception
        self._exception_tb = exception.__traceback__
        self._state = _FINISHED
        self.__schedule_callbacks()
        self.__log_traceback = True

    def cancel(self, msg: Any = None) -> bool:
        """Cancel, with `msg` as the argument of the CancelledError. False if the future is done."""
        self._check_initialized()
        self.__log_traceback = False
        if self._state != _PENDING:
            return False
        self._state = _CANCELLED
        self._cancel_message = msg
        self.__schedule_callbacks()
        return True

    def _make_cancelled_error(self) -> CancelledError:
        """The CancelledError to raise: once the one that a task's coroutine was left with, then fresh ones."""
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
        if self.__callbacks is None:
            self.__callbacks = [entry]
        else:
            self.__callbacks.append(entry)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove every callback that equals `fn`; return how many there were."""
        self._check_initialized()
        if self.__callbacks is None:
            return 0
        # Comparing may run any code, which may finish the future or change its callbacks: what is there then counts.
        kept = [entry for entry in self.__callbacks if entry[0] != fn]
        if self.__callbacks is None:
            return 0
        removed = len(self.__callbacks) - len(kept)
        if removed:
            self.__callbacks = kept or None
        return removed

    def __schedule_callbacks(self) -> None:
        callbacks = self.__callbacks
        if callbacks is None:
            return
        self.__callbacks = None
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)

    # -- awaiting ------------------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            if self._state == _PENDING:
                self._asyncio_future_blocking = True
                yield self
            if self._state == _PENDING:
                raise RuntimeError("await wasn't used with future")
            return self.result()
        finally:
            # As in result(): what is thrown in here is the future's own exception.
            del self

    __iter__ = __await__  # for `yield from`

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_initialized(self) -> None:
        if self._loop is None:
            raise RuntimeError("Future object is not initialized.")

    def _check_pending(self) -> None:
        self._check_initialized()
        if self._state != _PENDING:
            raise InvalidStateError(f"{self._state}: {self!r}")


def _replaced_stop_iteration(exception: StopIteration) -> RuntimeError:
    message = "StopIteration interacts badly with generators and cannot be raised into a Future"
    if sys.version_info < (3, 13):
        raise TypeError(message)
    error = RuntimeError(message)
    error.__cause__ = exception
    error.__context__ = exception
    return error
