from collections.abc import Generator
from typing import Any, final

# What Coroutine.__await__() returns.
@final
class CoroutineIterator(Generator[Any, Any, Any]):
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *arguments: Any) -> Any: ...
    def close(self) -> Any: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
