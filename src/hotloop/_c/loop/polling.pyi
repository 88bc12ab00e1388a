import asyncio

from typing_extensions import disjoint_base

# At run time a part of LoopCore; the methods that it overrides have the types of asyncio's.
@disjoint_base
class Polling(asyncio.SelectorEventLoop): ...

__test__: dict[str, str]
