from typing_extensions import disjoint_base

from hotloop._c.loop.state import LoopState

SLICE_NANOSECONDS: int

# At run time a part of LoopCore, with asyncio's private methods only.
@disjoint_base
class LoopPolling(LoopState): ...

__test__: dict[str, str]
