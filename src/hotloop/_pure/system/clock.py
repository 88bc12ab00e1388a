"""The system's monotonic clock, for what must take real time.

Tools that freeze the time, such as freezegun, replace time.monotonic(), and the name in each module that has imported
it. They find neither this module's function, because it is another object, nor can they replace it before this module
is imported.
"""

import time
from importlib.util import module_from_spec


def _untouched_time() -> object:
    """A second module `time`, which no program knows."""
    spec = time.__spec__
    if spec is None or spec.loader is None:
        return time
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


monotonic = getattr(_untouched_time(), "monotonic", time.monotonic)
"""time.monotonic() as Python has it. On PyPy, which has only one module `time`, as it is when this is imported."""
