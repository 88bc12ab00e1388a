from typing import final

# What has no entry here can be used from C only: conversion of addresses, and all that the cache does.
@final
class AddressCache: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
