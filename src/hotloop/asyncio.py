"""asyncio, with its own Python code compiled: `from hotloop import asyncio` in place of `import asyncio`.

Every name of the running Python's asyncio is here. Those that hotloop compiles work on any event loop, fastest on
hotloop's; all others are asyncio's own objects, the same ones. Without the compiled extension, and on a Python without
the GIL, all are.
"""

import asyncio as _asyncio
import functools as _functools

from hotloop._asyncio.compiled_layer import compiled_names as _compiled_names

__all__ = _asyncio.__all__

globals().update(
    {name: value for name, value in vars(_asyncio).items() if not (name.startswith("__") and name.endswith("__"))}
)
globals().update(_compiled_names())

# For names that asyncio makes on demand, and those that it was given since. Not a function in Python, whose frame would
# stand between the program and asyncio's __getattr__(): its deprecation warnings are about the line of the caller.
__getattr__ = _functools.partial(getattr, _asyncio)


def __dir__() -> list[str]:
    return dir(_asyncio)
