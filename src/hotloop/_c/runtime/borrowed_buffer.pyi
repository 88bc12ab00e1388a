import sys
from typing import final

@final
class BorrowedBuffer:
    if sys.version_info >= (3, 12):  # PEP 688
        def __buffer__(self, flags: int, /) -> memoryview: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
