import asyncio

# What the class Timeout has in C; not for programs.
class TimeoutFields: ...

Timeout = asyncio.Timeout
timeout = asyncio.timeout
timeout_at = asyncio.timeout_at

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
