from typing_extensions import disjoint_base

from hotloop._c.loop.loop_core import LoopCore

# Like LoopCore: the methods that it overrides have the types that they have in asyncio's class.
@disjoint_base
class NetworkCore(LoopCore): ...

__test__: dict[str, str]
