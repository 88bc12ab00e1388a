from typing_extensions import disjoint_base

# The base of Handle, Future and Task at run time. These stubs do not name it as their base: nothing of it is reachable
# from Python, and type checkers assume that no class can have both its layout and that of asyncio's classes.
@disjoint_base
class Runnable: ...

@disjoint_base
class ForeignRunnable(Runnable): ...

@disjoint_base
class ReadyQueue: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
