import sys
from typing import final

@final
class BorrowedBuffer:
    if sys.version_info >= (3, 12):  # PEP 688
        def __buffer__(self, flags: int, /) -> memoryview: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
