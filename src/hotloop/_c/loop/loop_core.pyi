import asyncio

from typing_extensions import disjoint_base

# At run time a mixin in front of asyncio's class; the methods that it overrides have the types of asyncio's.
@disjoint_base
class LoopCore(asyncio.SelectorEventLoop): ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
