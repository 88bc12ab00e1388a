import asyncio
from collections.abc import Generator
from typing import Any, TypeVar, final

_T = TypeVar("_T")

# At run time not a subclass of asyncio.Future: isinstance() follows a `__class__` property.
class Future(asyncio.Future[_T]):
    def __init__(self, *, loop: asyncio.AbstractEventLoop | None = None) -> None: ...

@final
class FutureIter(Generator[Any, Any, Any]):
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any: ...
    def close(self) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
