from typing_extensions import disjoint_base

# The base of all transports at run time; see the note on Runnable. None of it can be reached from Python.
@disjoint_base
class Watcher: ...

__test__: dict[str, str]
