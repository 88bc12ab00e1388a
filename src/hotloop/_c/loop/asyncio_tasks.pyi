from asyncio import Future, Task
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

class AsyncioTasks:
    def create_future(self) -> Future[Any]: ...
    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = ..., context: Context | None = ..., **kwargs: Any
    ) -> Task[Any]: ...

# Made by Cython.
__test__: dict[str, str]
