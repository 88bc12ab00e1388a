from hotloop._c.core import LoopCore

# Like LoopCore: the methods that it overrides have the types that they have in asyncio's class.
class NetworkCore(LoopCore): ...

__test__: dict[str, str]
