import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from typing_extensions import disjoint_base

_T = TypeVar("_T")

# At run time a part of LoopCore; the methods that it overrides have the types of asyncio's.
@disjoint_base
class TaskCreation(asyncio.SelectorEventLoop):
    # Except this one: any other default of `eager_start` is a value that a caller may pass on to a task factory.
    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = ...,
        context: Context | None = ...,
        eager_start: bool | None = ...,
        **kwargs: Any,
    ) -> asyncio.Task[_T]: ...

__test__: dict[str, str]
