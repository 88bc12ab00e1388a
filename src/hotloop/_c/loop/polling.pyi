from typing_extensions import disjoint_base

from hotloop._c.loop.state import LoopState

SLICE_NANOSECONDS: int

# What it has, at run time, is a loop's, which is asyncio's to everybody else.
@disjoint_base
class LoopPolling(LoopState): ...

__test__: dict[str, str]
