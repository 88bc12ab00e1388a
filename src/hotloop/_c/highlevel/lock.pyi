import asyncio

# What the class Lock has in C; not for programs.
class LockFields: ...

Lock = asyncio.Lock

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
