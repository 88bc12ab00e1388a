import asyncio

from typing_extensions import disjoint_base

SLICE_NANOSECONDS: int

# A mixin at run time, in front of asyncio's class; the methods that it overrides have the types they have there.
@disjoint_base
class LoopCore(asyncio.SelectorEventLoop): ...

__test__: dict[str, str]
