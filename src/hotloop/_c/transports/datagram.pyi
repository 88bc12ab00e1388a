import asyncio
from typing import Any, final

# The methods that it inherits at run time from Transport have the same types in asyncio's classes.
@final
class DatagramTransport(asyncio.Transport, asyncio.DatagramTransport):
    max_size: int
    def sendto(self, data: bytes | bytearray | memoryview, addr: Any = None) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
