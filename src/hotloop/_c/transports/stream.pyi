import asyncio
from typing import final

# The methods that it inherits at run time from Transport have the same types in asyncio's class.
@final
class StreamTransport(asyncio.Transport):
    max_size: int

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
