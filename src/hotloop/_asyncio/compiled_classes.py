"""Makes the classes of the compiled layer: asyncio's own classes, with C fields and compiled methods in front.

Each derives from asyncio's class. So isinstance() holds, and whatever is not compiled is asyncio's own: it works on the
same attributes, which are C fields. pickle and copy see asyncio's class, too.
"""

import copyreg
from typing import Any


def compiled_class(fields: type, own: type[Any], **functions: object) -> type[Any]:
    """The class that replaces asyncio's class `own`. `fields`: its attributes; `functions`: its compiled methods."""
    namespace = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "__getstate__": _state,
        "__reduce_ex__": _reduce,
        **functions,
    }
    made = type(own.__name__, (fields, own), namespace)
    _compiled[own] = made
    _own[made] = own
    return made


# The compiled class of each of asyncio's, and the other way about.
_compiled: dict[type, type] = {}
_own: dict[type, type] = {}


def _state(self: Any) -> tuple[dict[str, object] | None, dict[str, object]]:
    """object.__getstate__(), which refuses an object with C fields: what is in its `__dict__`, and its fields."""
    names = (name for base in type(self).__mro__ for name in vars(base).get("__slots__", ()))
    return vars(self) or None, {name: getattr(self, name) for name in names if hasattr(self, name)}


def _reduce(self: Any, protocol: int, /) -> Any:
    """object.__reduce_ex__(), for a class that is not to be found under its name."""
    reduced = object.__reduce_ex__(self, max(protocol, 2))
    own = _own.get(type(self))
    return reduced if own is None else (_restored, (own,), *reduced[2:])


def _restored(own: type) -> Any:
    return copyreg.__newobj__(_compiled[own])  # type: ignore[attr-defined]
