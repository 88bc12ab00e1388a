import asyncio
from contextvars import Context
from typing import Any, TypeVar

_T = TypeVar("_T")

# At run time a subclass of hotloop's Future; isinstance() for asyncio.Task follows a `__class__` property.
class Task(asyncio.Task[_T]):
    def get_context(self) -> Context: ...

def live_tasks() -> list[Task[Any]]: ...
def are_in_view() -> bool: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
