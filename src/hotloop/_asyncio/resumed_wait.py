"""asyncio's Condition.wait() from the middle on.

The compiled wait() does what is always the same. Where an exception ends one of its two waits, what follows differs
between versions of asyncio. There asyncio's own wait() takes over: it begins on a stand-in for the condition, on which
the part that has been done does nothing, and goes on with the exception on the condition itself.
"""

from asyncio import Condition, Future
from collections.abc import Coroutine, Generator
from typing import Any, NoReturn


def resumed_wait(
    condition: Any, waiter: "Future[bool] | None", error: BaseException | None
) -> Coroutine[Any, Any, bool]:
    """What remains of wait(), which has waited for `waiter`, or for acquire() if that is None, and got `error`."""
    return Condition.wait(_HalfWaited(condition, waiter, error))  # type: ignore[arg-type]


def refused_wait(condition: Any, error: BaseException) -> Coroutine[Any, Any, bool]:
    """A wait() for which the loop's create_future() has raised `error`."""
    return Condition.wait(_Refused(condition, error))  # type: ignore[arg-type]


class _Refused:
    """A condition as that wait() sees it."""

    def __init__(self, condition: Any, error: BaseException) -> None:
        self._condition = condition
        self._error: BaseException | None = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._condition, name)

    def _get_loop(self) -> "_Refused":  # whose create_future() is called
        return self

    def create_future(self) -> NoReturn:
        error, self._error = self._error, None
        assert error is not None
        try:
            raise error
        finally:
            error = None  # it has a reference to this frame


class _HalfWaited:
    """A condition as wait() sees it: unlocked and waited for already."""

    def __init__(self, condition: Any, waiter: "Future[bool] | None", error: BaseException | None) -> None:
        self._condition = condition
        self._waiter = waiter
        self._error = error

    @property
    def _waiters(self) -> "_HalfWaited":  # whose append() and remove() are called
        return self

    @property
    def _loop(self) -> "_HalfWaited":  # whose create_future() is called
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._condition, name)

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def _get_loop(self) -> "_HalfWaited":
        return self

    def create_future(self) -> "_HalfWaited":
        return self

    def append(self, _: "_HalfWaited") -> None:
        pass

    def __await__(self) -> Generator[Any, None, None]:
        if self._waiter is not None:
            self._raise_error()
        return
        yield

    def remove(self, _: "_HalfWaited") -> None:
        if self._waiter is not None:
            self._condition._waiters.remove(self._waiter)

    async def acquire(self) -> None:
        if self._waiter is None:
            self._raise_error()
        await self._condition.acquire()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            error = None  # it has a reference to this frame
