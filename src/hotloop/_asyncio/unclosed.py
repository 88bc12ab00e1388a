"""The warning about a transport that was dropped unclosed, given as if by asyncio's own transport.

Filters can name the module that warns, and Python keeps in that module what it has shown already.
"""

import sys
import warnings
from collections.abc import Callable


def unclosed_warning(counterpart: type) -> Callable[[object], None]:
    """What warns about a transport; `counterpart`: asyncio's class of such transports.

    Everything is looked up here, because transports are also freed at the interpreter's exit, and some programs replace
    `__del__()` of asyncio's transports. The returned function raises if warnings are errors."""
    module = sys.modules[counterpart.__module__]
    code = getattr(getattr(counterpart, "__del__", None), "__code__", None)
    line = code.co_firstlineno if code is not None and code.co_filename == module.__file__ else 1
    registry = module.__dict__.setdefault("__warningregistry__", {})
    place = (ResourceWarning, module.__file__ or module.__name__, line, module.__name__, registry)
    warn_explicit = warnings.warn_explicit

    def warn(transport: object) -> None:
        warn_explicit(f"unclosed transport {transport!r}", *place, source=transport)

    return warn
