import asyncio

from typing_extensions import disjoint_base

# At run time a part of LoopCore; the methods that it overrides have the types of asyncio's.
@disjoint_base
class ReplaceableMethods(asyncio.SelectorEventLoop): ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
