"""Which of asyncio's objects the compiled layer replaces, and by what; and puts them into asyncio where a program asks
for it.

Nothing here happens by an import: hotloop.asyncio takes the compiled objects for itself, and install() is called by
`python -m hotloop --compiled-asyncio`, hotloop.run(compiled_asyncio=True) and hotloop.install(compiled_asyncio=True).
"""

import asyncio
import functools
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from hotloop import _impl

# The names that each module of hotloop._c.highlevel has, by the module of asyncio's that defines them.
_PARTS = {
    "event": ("locks", ["Event"]),
    "queues": ("queues", ["Queue", "PriorityQueue", "LifoQueue"]),
}


@dataclass(frozen=True)
class CompiledAsyncio:
    """The state of hotloop's compiled objects for asyncio in this process: see hotloop.compiled_asyncio()."""

    available: bool
    """Whether this Python and this installation of hotloop have them."""
    reason: str
    """Why they are available, or why not."""
    installed: bool
    """Whether they stand in asyncio's place, and not only in hotloop.asyncio."""
    names: tuple[str, ...]
    """The names that are compiled, as in asyncio."""
    imported_earlier: tuple[str, ...]
    """Names of other modules that hold asyncio's own objects, such as `program.Queue` after `from asyncio import Queue`."""


def why_unavailable() -> str | None:
    """Why there is no compiled layer; None if there is one."""
    if _impl.implementation != "c":
        return f"the pure implementation is in use: {_impl.reason}"
    if sys.version_info >= (3, 13) and not sys._is_gil_enabled():
        return "this Python runs without the GIL"
    return None


def is_available() -> bool:
    """Whether there is a compiled layer: with the compiled implementation, on a Python with the GIL."""
    return why_unavailable() is None


@functools.cache
def _replacements() -> tuple[tuple[str, object, object], ...]:
    """Of each compiled object its name, asyncio's own object and the compiled one; none if there is no compiled layer.

    To be called before asyncio's own objects are replaced: install() does."""
    if not is_available():
        return ()
    found = []
    for part, (home, names) in _PARTS.items():
        module = import_module(f"hotloop._c.highlevel.{part}")
        own = vars(import_module(f"asyncio.{home}"))
        found += [(name, own[name], getattr(module, name)) for name in names]
    return tuple(found)


def compiled_names() -> dict[str, object]:
    """The compiled objects by the names that they have in asyncio; empty if there is no compiled layer."""
    return {name: compiled for name, _, compiled in _replacements()}


# -- in asyncio's place ------------------------------------------------------------------------------------------------

_VARIABLE = "HOTLOOP_COMPILED_ASYNCIO"


def is_asked_for() -> bool:
    """Whether the environment asks for the compiled objects. Raises ValueError if its word is none that is known."""
    asked = os.environ.get(_VARIABLE, "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"{_VARIABLE} must be 1 or 0, or unset; it is {asked!r}")
    return asked == "1"


def ask_children() -> None:
    """Have the processes that this one starts ask for the compiled objects, too."""
    os.environ[_VARIABLE] = "1"


def install() -> None:
    """Put the compiled objects into asyncio and its modules, wherever asyncio's own stand; for good.

    asyncio's own code finds them as well, because it looks its names up when it uses them: a Queue's Event is compiled,
    and open_connection() makes a compiled StreamReader. Does nothing if there is no compiled layer, or the second time.
    """
    compiled = {id(own): replacement for _, own, replacement in _replacements()}
    for name, module in sorted(sys.modules.items()):
        if _is_asyncios(name):
            for attribute, value in list(_names_of(module)):
                if id(value) in compiled:
                    setattr(module, attribute, compiled[id(value)])


def _is_asyncios(module: str) -> bool:
    return module == "asyncio" or module.startswith("asyncio.")


def _names_of(module: ModuleType) -> list[tuple[str, object]]:
    # A program may put any object into sys.modules.
    return list(vars(module).items()) if isinstance(module, ModuleType) else []


def state() -> CompiledAsyncio:
    """What is compiled in this process, and whether asyncio's names are the compiled objects.

    Use it in a running program to see what `compiled_asyncio=True` or `--compiled-asyncio` has done: names that a module
    had imported from asyncio before are in `imported_earlier`. They go on working beside the compiled ones."""
    why_not = why_unavailable()
    replaced = _replacements()
    own = {id(own) for _, own, _ in replaced}
    earlier = [
        f"{name}.{attribute}"
        for name, module in sorted(sys.modules.items())
        if not _is_asyncios(name)
        for attribute, value in _names_of(module)
        if id(value) in own
    ]
    return CompiledAsyncio(
        available=why_not is None,
        reason=why_not or _impl.reason,
        installed=bool(replaced) and all(getattr(asyncio, name) is compiled for name, _, compiled in replaced),
        names=tuple(name for name, _, _ in replaced),
        imported_earlier=tuple(earlier),
    )
