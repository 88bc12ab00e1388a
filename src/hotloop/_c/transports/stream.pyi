import asyncio
from typing import final

# What it inherits at run time, from Transport, has the types that it has in asyncio's class.
@final
class StreamTransport(asyncio.Transport):
    max_size: int

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
