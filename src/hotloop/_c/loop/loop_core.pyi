import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from typing_extensions import disjoint_base

_T = TypeVar("_T")

# A mixin at run time, in front of asyncio's class; the methods that it overrides have the types they have there.
@disjoint_base
class LoopCore(asyncio.SelectorEventLoop):
    # But here any default of `eager_start` would stand for something that a task factory could be told.
    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = ...,
        context: Context | None = ...,
        eager_start: bool | None = ...,
        **kwargs: Any,
    ) -> asyncio.Task[_T]: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
