from typing import Any, final

# The conversion of addresses and the methods of the cache are callable from C only, so they have no entry here.
@final
class AddressCache: ...

def resolves_at_once(host: object, port: object, flags: object = 0) -> bool: ...
def getaddrinfo_literal(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]] | None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
