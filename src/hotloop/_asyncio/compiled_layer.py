"""The compiled layer: which of asyncio's objects it replaces, and by what.

hotloop.asyncio has the compiled objects for modules that import it. install() puts them into asyncio itself. No import
calls it, only `python -m hotloop --compiled-asyncio`, hotloop.run(compiled_asyncio=True) and
hotloop.install(compiled_asyncio=True).
"""

import asyncio
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, ModuleType

from hotloop import _impl
from hotloop._asyncio.compiled_streams import accept_own_readers
from hotloop._switches import OFF, ON

# The names that each module of hotloop._c.highlevel has, by the module of asyncio's that defines them.
_PARTS = {
    "as_completed": ("tasks", ["as_completed"] if sys.version_info >= (3, 13) else []),
    "condition": ("locks", ["Condition"]),
    "event": ("locks", ["Event"]),
    "gathering": ("tasks", ["gather"]),
    "lock": ("locks", ["Lock"]),
    "queues": ("queues", ["Queue", "PriorityQueue", "LifoQueue"]),
    "semaphores": ("locks", ["Semaphore", "BoundedSemaphore"]),
    "shield": ("tasks", ["shield"]),
    "sleep": ("tasks", ["sleep"]),
    "stream_reader": ("streams", ["StreamReader"]),
    "stream_protocol": ("streams", ["StreamReaderProtocol"]),
    "stream_writer": (
        "streams",
        ["StreamWriter", "open_connection", "start_server", "open_unix_connection", "start_unix_server"],
    ),
    "task_group": ("taskgroups", ["TaskGroup"]),
    "timeouts": ("timeouts", ["Timeout", "timeout", "timeout_at"]),
    "wait": ("tasks", ["wait"]),
    "wait_for": ("tasks", ["wait_for"] if sys.version_info >= (3, 12) else []),
}


@dataclass(frozen=True)
class CompiledAsyncio:
    """What hotloop.compiled_asyncio() returns."""

    available: bool
    """Whether there are compiled objects for this Python."""
    reason: str
    """Why there are, or why not."""
    installed: bool
    """Whether they stand in asyncio's place, and not in `hotloop.asyncio` alone."""
    names: tuple[str, ...]
    """The compiled objects, by their names in asyncio."""
    imported_earlier: tuple[str, ...]
    """Where other modules hold asyncio's own objects: `program.Queue` after `from asyncio import Queue`."""


def compiled_asyncio() -> CompiledAsyncio:
    """Return what of asyncio is compiled in this process, and whether it stands in asyncio's place.

    With `compiled_asyncio=True` or `--compiled-asyncio`, `imported_earlier` has the names that modules had imported
    from asyncio before. What they name keeps working beside the compiled objects, at asyncio's speed.
    """
    why_not = why_unavailable()
    replaced = _replacements_in_asyncio()
    return CompiledAsyncio(
        available=why_not is None,
        reason=why_not or _impl.reason,
        installed=bool(replaced) and all(getattr(asyncio, name, None) is compiled for name, _, compiled in replaced),
        names=tuple(compiled_names()),
        imported_earlier=tuple(_names_of_own_objects({id(own) for _, own, _ in replaced})),
    )


def _names_of_own_objects(ids: set[int]) -> Iterator[str]:
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] not in ("asyncio", "hotloop"):
            for attribute, value in _contents(module):
                if id(value) in ids:
                    yield f"{name}.{attribute}"


def why_unavailable() -> str | None:
    """Why there is no compiled layer; None if there is one."""
    if _impl.implementation == "asyncio":
        return f"asyncio's own loop is in use: {_impl.reason}"
    if _impl.implementation != "c":
        return f"the pure implementation is in use: {_impl.reason}"
    if sys.version_info >= (3, 13) and not sys._is_gil_enabled():
        return "this Python runs without the GIL"
    return None


def compiled_names() -> dict[str, object]:
    """The compiled objects by the names that they have in asyncio; empty if there is no compiled layer."""
    return {name: compiled for name, _, compiled in _replacements()}


@functools.cache
def _replacements() -> tuple[tuple[str, object, object], ...]:
    """The name, asyncio's own object and the compiled one, for each; empty if there is no compiled layer.

    install() calls it before it replaces anything."""
    if why_unavailable() is not None:
        return ()
    found = []
    for part, (home, names) in _PARTS.items():
        module = import_module(f"hotloop._c.highlevel.{part}")
        own = vars(import_module(f"asyncio.{home}"))
        found += [(name, own[name], getattr(module, name)) for name in names]
    return tuple(found)


def _replacements_in_asyncio() -> list[tuple[str, object, object]]:
    """Without the copies of asyncio's own functions, such as open_connection(), that use compiled classes: in asyncio,
    its own function finds them."""
    return [each for each in _replacements() if type(each[2]) is not FunctionType]


# -- in asyncio's place ------------------------------------------------------------------------------------------------

_VARIABLE = "HOTLOOP_COMPILED_ASYNCIO"


def install_if_asked(asked: bool | None) -> None:
    """install() if `asked` is true, or if it is None and the environment asks for it."""
    if is_asked_by_environment() if asked is None else asked:
        install()


def is_asked_by_environment() -> bool:
    """Raises ValueError if HOTLOOP_COMPILED_ASYNCIO is neither on nor off."""
    value = os.environ.get(_VARIABLE, "")
    if value.lower() not in (*OFF, *ON):
        raise ValueError(f"{_VARIABLE} must be 1 or 0, or unset; it is {value!r}")
    return value.lower() in ON


def ask_child_processes() -> None:
    """Have the processes that this one starts ask for the compiled objects, too."""
    os.environ[_VARIABLE] = "1"


def install() -> None:
    """Put the compiled objects into asyncio and its modules, wherever asyncio's own stand, until the process ends.

    asyncio's own code then uses them as well, because it looks its names up at each use: a Queue makes a compiled
    Event, open_connection() a compiled StreamReader. Idempotent. Does nothing if there is no compiled layer.
    """
    compiled = {id(own): replacement for _, own, replacement in _replacements_in_asyncio()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "asyncio":
            for attribute, value in _contents(module):
                if id(value) in compiled:
                    setattr(module, attribute, compiled[id(value)])
    if compiled:
        accept_own_readers()


def _contents(module: object) -> list[tuple[str, object]]:
    # A program may put any object into sys.modules.
    return list(vars(module).items()) if isinstance(module, ModuleType) else []
