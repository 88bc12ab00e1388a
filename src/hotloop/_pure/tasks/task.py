"""Task: a coroutine that the loop runs step by step, and a Future for its outcome.

A complete replacement of asyncio.Task. A task that is not done is in one of three states:

    waiting       `_fut_waiter` is a future that is not done; its callbacks include this task's wakeup
    scheduled     a step is on the ready queue; `_fut_waiter` is None, or a future that is done
    running       in a step; `_fut_waiter` is None and no step is in the queue

A step runs the coroutine to its next `await` of a future that is not done. Future.__await__() yields the future
through all coroutines in between to the task, which adds its wakeup as a callback and is waiting. When the future is
done, the loop calls the wakeup, which runs the next step.
"""

import asyncio
import inspect
import sys
from asyncio import CancelledError, InvalidStateError
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import FrameType
from typing import Any, TextIO

from hotloop._asyncio.classes import assign_class, likeness
from hotloop._asyncio.internals import base_tasks, coroutines, futures, tasks
from hotloop._pure.tasks.future import Future

_register_task = tasks._register_task
_enter_task = tasks._enter_task
_leave_task = tasks._leave_task
# For eager tasks, Python 3.12 and later.
_swap_current_task: Any = getattr(tasks, "_swap_current_task", None)
_register_eager_task: Any = getattr(tasks, "_register_eager_task", None)
_unregister_eager_task: Any = getattr(tasks, "_unregister_eager_task", None)
# The `value` of a StopIteration, even if a subclass overrides the attribute.
_value_of: Any = StopIteration.__dict__["value"].__get__


class Task(Future):
    """A Future that runs a coroutine. See asyncio.Task; Python 3.11 has no `eager_start`."""

    # Defaults of the instances' attributes: the usual case, or what holds before __init__() has set them.
    _log_destroy_pending = True  # report it if the task is destroyed while it is pending
    _coro: Any = None
    _context: Context | None = None
    _name: str | None = None
    _fut_waiter: Any = None
    _must_cancel = False  # the next step throws CancelledError into the coroutine
    _num_cancels_requested = 0
    _measurements: Any = None  # the loop's, if it is a loop of this implementation

    @property
    def __class__(self) -> type:
        return asyncio.Task if type(self) is Task else likeness(type(self), asyncio.Task)

    @__class__.setter
    def __class__(self, value: type) -> None:
        assign_class(self, value)

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        loop: Any = None,
        name: object = None,
        context: Context | None = None,
        eager_start: bool | None = False,
    ) -> None:
        Future.__init__(self, loop=loop)
        if self._source_traceback:
            del self._source_traceback[-1]
        try:
            self.__check_arguments(coro, context, eager_start)
        except TypeError:
            # The task was never complete, so its destruction is nothing to report.
            self._log_destroy_pending = False
            raise
        if self._coro is not None:
            # Called again.
            for attribute in ("_fut_waiter", "_must_cancel", "_num_cancels_requested", "_log_destroy_pending"):
                self.__dict__.pop(attribute, None)
        self._context = copy_context() if context is None else context
        self._coro = coro
        self._name = f"Task-{tasks._task_name_counter()}" if name is None else str(name)
        self._measurements = getattr(self._loop, "_measurements", None)
        if eager_start and self._loop.is_running():
            try:
                self.__eager_start()
            except BaseException:
                self._log_destroy_pending = False
                raise
        else:
            self._loop.call_soon(self.__step, context=self._context)
            _register_task(self)

    @staticmethod
    def __check_arguments(coro: object, context: object, eager_start: object) -> None:
        if not coroutines.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if sys.version_info >= (3, 15) and not (context is None or isinstance(context, Context)):
            raise TypeError(f"a contextvars.Context was expected, got {type(context).__name__}")
        if sys.version_info < (3, 12) and eager_start:
            raise TypeError("'eager_start' is an invalid keyword argument for Task()")

    def __del__(self) -> None:
        # Without a loop, __init__() has failed: there is no pending task to report.
        if self._state == "PENDING" and self._log_destroy_pending and self._loop is not None:
            context = {"task": self, "message": "Task was destroyed but it is pending!"}
            if self._source_traceback:
                context["source_traceback"] = self._source_traceback
            self._loop.call_exception_handler(context)
        Future.__del__(self)

    def __repr__(self) -> str:
        return str(base_tasks._task_repr(self))

    # -- properties ----------------------------------------------------------------------------------------------------

    def get_coro(self) -> Any:
        """Return the coroutine; None if an eager start has finished it."""
        return self._coro

    def get_context(self) -> Context | None:
        """Return the context that the coroutine runs in."""
        return self._context

    def get_name(self) -> str | None:
        """Return the name, `Task-<number>` unless it was given or set."""
        return self._name

    def set_name(self, value: object) -> None:
        """Set the name to str(value)."""
        self._name = str(value)

    def get_stack(self, *, limit: int | None = None) -> list[FrameType]:
        """Return the one frame of a suspended coroutine, or the frames of the traceback it ended with; oldest first.

        `limit` keeps the newest frames of a stack, but the oldest of a traceback."""
        frames: list[FrameType] = base_tasks._task_get_stack(self, limit)
        return frames

    def print_stack(self, *, limit: int | None = None, file: TextIO | None = None) -> None:
        """Print what get_stack() returns as the traceback module would, to `file` or sys.stderr."""
        base_tasks._task_print_stack(self, limit, file)

    def set_result(self, result: Any) -> None:
        """Raise RuntimeError: a task's result comes from its coroutine."""
        raise RuntimeError("Task does not support set_result operation")

    def set_exception(self, exception: Any) -> None:
        """Raise RuntimeError: a task's exception comes from its coroutine."""
        raise RuntimeError("Task does not support set_exception operation")

    # -- cancellation --------------------------------------------------------------------------------------------------

    def cancel(self, msg: Any = None) -> bool:
        """Have the next step throw CancelledError(msg) into the coroutine. Returns False if the task is done.

        The coroutine may clean up, or refuse: the task is cancelled only if the coroutine ends with the CancelledError.
        Each call adds one to cancelling()."""
        self._log_traceback = False
        if self.done():
            return False
        self._num_cancels_requested += 1
        # `_fut_waiter` may be a task that refuses. It stays, so that a further cancel() reaches it.
        if self._fut_waiter is not None and self._fut_waiter.cancel(msg=msg):
            return True
        # Scheduled or running.
        self._must_cancel = True
        self._cancel_message = msg
        return True

    def cancelling(self) -> int:
        """Return the number of cancel() calls minus the number of uncancel() calls."""
        return self._num_cancels_requested

    def uncancel(self) -> int:
        """Take one cancel() back; return how many remain.

        From Python 3.13 on, taking back the last one revokes a cancellation that has not reached the coroutine."""
        if self._num_cancels_requested > 0:
            self._num_cancels_requested -= 1
            if sys.version_info >= (3, 13) and self._num_cancels_requested == 0:
                self._must_cancel = False
        return self._num_cancels_requested

    # -- steps ---------------------------------------------------------------------------------------------------------
    # The traceback of an exception that the task keeps holds these frames: `del` breaks the cycles through them.

    def __eager_start(self) -> None:
        """Run the first step now, maybe within another task's step."""
        previous = _swap_current_task(self._loop, self)
        try:
            _register_eager_task(self)
            try:
                self._context.run(self.__run_coroutine, None)  # type: ignore[union-attr]
            finally:
                _unregister_eager_task(self)
        finally:
            try:
                _swap_current_task(self._loop, previous)
            finally:
                if self.done():
                    self._coro = None
                else:
                    _register_task(self)
                del self

    def __step(self, exc: BaseException | None = None) -> None:
        """Run the coroutine to its next await; throw `exc` into it if it is not None."""
        if self.done():
            raise InvalidStateError(f"step(): already done: {self!r}, {exc!r}")
        if self._must_cancel:
            if not isinstance(exc, CancelledError):
                exc = self._make_cancelled_error()
            self._must_cancel = False
        self._fut_waiter = None
        _enter_task(self._loop, self)
        try:
            self.__run_coroutine(exc)
        finally:
            _leave_task(self._loop, self)
            del self, exc

    def __wakeup(self, future: Any) -> None:
        """The callback of the future that the task waits for."""
        error = None
        try:
            future.result()
        except BaseException as exc:
            # Including CancelledError, for the coroutine to handle. The coroutine takes a result from the future.
            error = exc
        try:
            # Outside of the handler: what the coroutine raises later must not get this exception as its context.
            self.__step(error)
        finally:
            del self, future, error

    def __run_coroutine(self, exc: BaseException | None) -> None:
        if self._measurements is not None:
            self._measurements.steps += 1
        try:
            yielded = self._coro.send(None) if exc is None else self._coro.throw(exc)
        except StopIteration as stop:
            if self._must_cancel:
                # Cancelled by its own last step.
                self._must_cancel = False
                Future.cancel(self, msg=self._cancel_message)
            else:
                Future.set_result(self, _value_of(stop))
        except CancelledError as error:
            # result() raises this one, so that the awaiting coroutine sees where the task was cancelled.
            self._cancelled_exc = error
            Future.cancel(self)
        except (KeyboardInterrupt, SystemExit) as error:
            Future.set_exception(self, error)
            raise
        except BaseException as error:
            Future.set_exception(self, error)
        else:
            self.__await_yielded(yielded)
        finally:
            del self, exc

    def __await_yielded(self, yielded: Any) -> None:
        """Wait for the future that the coroutine has yielded. None requests another step."""
        blocking = getattr(yielded, "_asyncio_future_blocking", None)
        if blocking and yielded is not self and futures._get_loop(yielded) is self._loop:
            yielded._asyncio_future_blocking = False
            yielded.add_done_callback(self.__wakeup, context=self._context)
            self._fut_waiter = yielded
            if self._must_cancel and yielded.cancel(msg=self._cancel_message):
                self._must_cancel = False
        elif yielded is None:
            self._loop.call_soon(self.__step, context=self._context)
        else:
            error = RuntimeError(self.__why_not(yielded, blocking))
            self._loop.call_soon(self.__step, error, context=self._context)

    def __why_not(self, yielded: Any, blocking: bool | None) -> str:
        """The reason why the coroutine must not yield this object."""
        if blocking is None:
            if inspect.isgenerator(yielded):
                return f"yield was used instead of yield from for generator in task {self!r} with {yielded!r}"
            return f"Task got bad yield: {yielded!r}"
        if futures._get_loop(yielded) is not self._loop:
            return f"Task {self!r} got Future {yielded!r} attached to a different loop"
        if not blocking:
            return f"yield was used instead of yield from in task {self!r} with {yielded!r}"
        return f"Task cannot await on itself: {self!r}"
