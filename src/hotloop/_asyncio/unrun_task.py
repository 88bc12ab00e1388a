"""asyncio's own task and future without a loop that runs them: to look at how they are made."""

import importlib
from collections.abc import Coroutine
from typing import Any


class _NoLoop:
    """The minimum that asyncio.Task accepts as a loop."""

    def get_debug(self) -> bool:
        return False

    def call_soon(self, *_: object, **__: object) -> None:
        pass


async def _nothing() -> None:
    pass


class UnrunTask:
    """A pending task of asyncio's compiled class, registered as the latest in this thread, and what it was made from.

    ImportError or AttributeError: this Python has no such class, or another one. close() must be called.
    """

    def __init__(self) -> None:
        from _asyncio import Task

        make: Any = Task
        self.coroutine: Coroutine[Any, Any, None] = _nothing()
        self.name = "a task that is never run"
        self.task = make(self.coroutine, loop=_NoLoop(), name=self.name)
        self.task._log_destroy_pending = False
        self.waiters: list[Any] = []

    def add_waiter(self) -> object:
        """Have one more future wait for the task, and return it."""
        asyncio_in_c: Any = importlib.import_module("_asyncio")  # its type stub has the function from 3.14 on alone
        self.waiters.append(asyncio_in_c.Future(loop=_NoLoop()))
        asyncio_in_c.future_add_to_awaited_by(self.task, self.waiters[-1])
        return self.waiters[-1]

    def close(self) -> None:
        """Drop the task without a warning."""
        self.coroutine.close()
        self.task = None
