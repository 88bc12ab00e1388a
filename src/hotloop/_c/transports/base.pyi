import asyncio

from typing_extensions import disjoint_base

# At run time it is no subclass; isinstance() holds by its `__class__` property.
@disjoint_base
class Transport(asyncio.Transport):
    max_size: int
    def get_write_buffer_limits(self) -> tuple[int, int]: ...

def release_transport(transport: Transport) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
