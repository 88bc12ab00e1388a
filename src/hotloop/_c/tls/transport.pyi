import asyncio
from typing import final

# At run time it is no subclass; isinstance() holds by its `__class__` property.
@final
class SSLTransport(asyncio.Transport):
    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_read_buffer_limits(self) -> tuple[int, int]: ...
    def get_read_buffer_size(self) -> int: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
