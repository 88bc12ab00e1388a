import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class TimerQueue: ...

# At run time a subclass of hotloop's Handle.
@disjoint_base
class TimerHandle(asyncio.TimerHandle):
    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None = None,
    ) -> None: ...
    def __lt__(self, other: object, /) -> bool: ...
    def __le__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
