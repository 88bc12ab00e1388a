from typing_extensions import disjoint_base

from hotloop._c.loop.loop_core import LoopCore

# Like LoopCore: the methods that it overrides have the types of asyncio's.
@disjoint_base
class NetworkCore(LoopCore): ...

__test__: dict[str, str]
