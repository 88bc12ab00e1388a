from typing import final

# For the other compiled modules: nothing of it is reachable from Python.
@final
class Unflushed: ...

__test__: dict[str, str]
