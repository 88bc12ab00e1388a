import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Handle(asyncio.Handle):
    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None = None,
    ) -> None: ...
    def get_context(self) -> Context: ...
    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]: ...

def format_callback(callback: object, args: Any, loop: asyncio.AbstractEventLoop) -> str: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
