import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

_T = TypeVar("_T")

# At run time a subclass of hotloop's Future; isinstance() for asyncio.Task follows a `__class__` property.
class Task(asyncio.Task[_T]):
    def __init__(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        name: object = None,
        context: Context | None = None,
        eager_start: bool | None = False,
    ) -> None: ...
    def get_context(self) -> Context: ...

def live_tasks() -> list[Task[Any]]: ...
def are_in_view() -> bool: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
