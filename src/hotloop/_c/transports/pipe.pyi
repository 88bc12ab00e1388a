import asyncio
from typing import final

from typing_extensions import disjoint_base

# The methods that they inherit at run time from Transport have the same types in asyncio's classes.
@disjoint_base
class PipeTransport(asyncio.BaseTransport): ...

@final
class ReadPipeTransport(PipeTransport, asyncio.ReadTransport):
    max_size: int

@final
class WritePipeTransport(PipeTransport, asyncio.WriteTransport):
    # asyncio's transport has these methods, too, because it derives from Transport; they raise NotImplementedError.
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
