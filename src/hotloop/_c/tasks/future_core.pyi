from typing_extensions import disjoint_base

@disjoint_base
class FutureCore: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
