import asyncio

from typing_extensions import disjoint_base

# What it has, at run time, is asyncio's attributes, which are private.
@disjoint_base
class LoopState(asyncio.SelectorEventLoop): ...

__test__: dict[str, str]
