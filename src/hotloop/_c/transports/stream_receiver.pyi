import asyncio

from typing_extensions import disjoint_base

# The methods that it inherits at run time from Transport have the same types in asyncio's class.
@disjoint_base
class StreamReceiver(asyncio.Transport):
    max_size: int

__test__: dict[str, str]
