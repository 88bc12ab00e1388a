# The base of all transports at run time; see the comment on Runnable. Nothing of it is reachable from Python.
class Watcher: ...

__test__: dict[str, str]
