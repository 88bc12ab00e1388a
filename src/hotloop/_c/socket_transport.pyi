import asyncio

from typing_extensions import disjoint_base

# What it inherits at run time, from Transport, has the types that it has in asyncio's class.
@disjoint_base
class SocketTransport(asyncio.Transport): ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
