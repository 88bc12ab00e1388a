from typing import Any, final

# What has no entry here can be used from C only: conversion of addresses, and all that the cache does.
@final
class AddressCache: ...

def resolves_at_once(host: object, port: object, flags: object = 0) -> bool: ...
def getaddrinfo_literal(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]] | None: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
