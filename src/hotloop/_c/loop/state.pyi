import asyncio

from typing_extensions import disjoint_base

# At run time a part of LoopCore, with asyncio's private attributes only.
@disjoint_base
class LoopState(asyncio.SelectorEventLoop): ...

__test__: dict[str, str]
