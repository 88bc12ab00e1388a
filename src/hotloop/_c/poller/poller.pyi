from typing_extensions import disjoint_base

# The base of the selector classes at run time; see the comment on Runnable. Nothing of it is reachable from Python.
@disjoint_base
class Poller: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
