# The base of all transports at run time; see the note on Runnable. None of it can be reached from Python.
class Watcher: ...

__test__: dict[str, str]
