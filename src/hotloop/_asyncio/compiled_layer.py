"""Which of asyncio's objects the compiled layer replaces, and by what."""

import sys
from importlib import import_module

from hotloop import _impl

# The names that each module of hotloop._c.highlevel has, by the module of asyncio's that defines them.
_PARTS = {
    "event": ("locks", ["Event"]),
    "queues": ("queues", ["Queue", "PriorityQueue", "LifoQueue"]),
}


def is_available() -> bool:
    """Whether there is a compiled layer: with the compiled implementation, on a Python with the GIL."""
    has_gil = sys.version_info < (3, 13) or sys._is_gil_enabled()
    return _impl.implementation == "c" and has_gil


def compiled_names() -> dict[str, object]:
    """The compiled objects by the names that they have in asyncio; empty if there is no compiled layer."""
    if not is_available():
        return {}
    found = {}
    for part, (_, names) in _PARTS.items():
        module = import_module(f"hotloop._c.highlevel.{part}")
        found.update({name: getattr(module, name) for name in names})
    return found
