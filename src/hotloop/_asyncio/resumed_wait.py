"""asyncio's Condition.wait() from the middle on.

The compiled wait() does what is always the same. Where an exception ends one of its two waits, what follows differs
between versions of asyncio. There asyncio's own wait() takes over: it begins on a stand-in for the condition, on which
the part that has been done does nothing or raises the exception, and goes on with the condition itself.
"""

from asyncio import Condition, Future
from collections.abc import Coroutine, Generator
from typing import Any, Self


def resumed_wait(
    condition: Any, waiter: "Future[bool] | None", error: BaseException | None
) -> Coroutine[Any, Any, bool]:
    """What remains of wait(), which has waited for `waiter`, or for acquire() if that is None, and got `error`."""
    return Condition.wait(_HalfWaited(condition, waiter, error))  # type: ignore[arg-type]


def refused_wait(condition: Any, error: BaseException) -> Coroutine[Any, Any, bool]:
    """A wait() for which the loop's create_future() has raised `error`."""
    return Condition.wait(_Refused(condition, error))  # type: ignore[arg-type]


class _StandIn:
    """A condition as asyncio's wait() sees it."""

    def __init__(self, condition: Any, error: BaseException | None) -> None:
        self._condition = condition
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._condition, name)

    def _get_loop(self) -> Self:  # whose create_future() is called
        return self

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            error = None  # it has a reference to this frame


class _Refused(_StandIn):
    """The loop makes no future."""

    def create_future(self) -> None:
        self._raise_error()


class _HalfWaited(_StandIn):
    """Unlocked and waited for already."""

    def __init__(self, condition: Any, waiter: "Future[bool] | None", error: BaseException | None) -> None:
        super().__init__(condition, error)
        self._waiter = waiter

    @property
    def _waiters(self) -> Self:  # whose append() and remove() are called
        return self

    @property
    def _loop(self) -> Self:  # whose create_future() is called
        return self

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def create_future(self) -> Self:
        return self

    def append(self, _: Self) -> None:
        pass

    def __await__(self) -> Generator[Any, None, None]:
        if self._waiter is not None:
            self._raise_error()
        return
        yield

    def remove(self, _: Self) -> None:
        if self._waiter is not None:
            self._condition._waiters.remove(self._waiter)

    async def acquire(self) -> None:
        if self._waiter is None:
            self._raise_error()
        await self._condition.acquire()
