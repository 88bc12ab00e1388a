"""Makes the classes of the compiled layer: asyncio's own classes, with C fields and compiled methods in front.

Each derives from asyncio's class. So isinstance() holds, and whatever is not compiled is asyncio's own: it works on the
same attributes, which are C fields.

Classes, objects and functions are pickled by asyncio's names where these are the compiled ones. Otherwise objects and
functions are pickled as hotloop's; their classes cannot be, because another class has their name.
"""

import copyreg
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any


def compiled_class(fields: type, own: type[Any], **functions: object) -> type[Any]:
    """The class that replaces asyncio's class `own`. `fields`: its attributes; `functions`: its compiled methods."""
    namespace = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "__getstate__": _state,
        "__setstate__": _set_state,
        "__reduce_ex__": _reduce,
        **{name: vars(own)[name] for name in _PLACE if name in vars(own)},
        **functions,
    }
    made = type(own.__name__, (fields, own), namespace)
    _compiled[own] = made
    _own[made] = own
    return made


# By which inspect.getsource() finds a class's source, from Python 3.13 on.
_PLACE = ("__firstlineno__", "__static_attributes__")

# The compiled class of each of asyncio's, and the other way about.
_compiled: dict[type, type] = {}
_own: dict[type, type] = {}


def _state(self: Any) -> tuple[dict[str, object] | None, dict[str, object]]:
    """object.__getstate__(), which refuses an object with C fields: what is in its `__dict__`, and its fields."""
    names = copyreg._slotnames(type(self))  # type: ignore[attr-defined]
    return vars(self) or None, {name: getattr(self, name) for name in names if hasattr(self, name)}


def _set_state(self: Any, state: Any, /) -> None:
    """What pickle and copy do with a state, by setattr(): asyncio's own objects have it all in their `__dict__`."""
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            setattr(self, name, value)


def _reduce(self: Any, protocol: int, /) -> Any:
    """object.__reduce_ex__(), also for a class that is not to be found under its name."""
    reduced = object.__reduce_ex__(self, max(protocol, 2))
    own = _own.get(type(self))
    if own is None or _is_found(own.__module__, own.__qualname__, type(self)):
        return reduced
    return _restored, (own,), *reduced[2:]


def _restored(own: type) -> Any:
    return copyreg.__newobj__(_compiled.get(own, own))  # type: ignore[attr-defined]


def reduce_function(function: Any) -> Any:
    """For the `__reduce__` of a compiled function: its name, or how another process finds it."""
    module, name = function.__module__, function.__qualname__
    return name if _is_found(module, name, function) else (_function, (module, name))


def _function(module: str, name: str) -> Any:
    from hotloop._asyncio.compiled_layer import compiled_names

    first, _, rest = name.partition(".")
    found = compiled_names().get(first) or getattr(import_module(module), first)
    return attrgetter(rest)(found) if rest else found


def _is_found(module: str, name: str, value: object) -> bool:
    try:
        return attrgetter(name)(sys.modules[module]) is value
    except (AttributeError, KeyError):
        return False
