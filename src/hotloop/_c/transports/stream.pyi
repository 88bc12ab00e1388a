import asyncio
from typing import final

# The methods that it inherits at run time from Transport have the same types in asyncio's class.
@final
class StreamTransport(asyncio.Transport):
    max_size: int

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
