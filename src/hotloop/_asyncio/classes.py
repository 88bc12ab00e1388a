"""The `__class__` of futures and tasks.

isinstance(task, asyncio.Task) asks for the `__class__` of a task where the type itself does not match. That of our own
Future or Task is asyncio's. A program's subclass has class attributes, a name and a constructor of its own, which its
methods reach by `self.__class__`; so there it is a class that is derived from asyncio's, and in all else stands for the
subclass: its likeness.
"""

import copyreg
from typing import Any


class _Likeness(type):
    """Of a likeness, which has no instances. All that it is asked for is its model's, the subclass it was made for."""

    def __new__(mcs, model: type, counterpart: type) -> "_Likeness":
        made = super().__new__(mcs, model.__name__, (counterpart,), {})
        type.__setattr__(made, "_model", model)
        return made

    def __init__(cls, model: type, counterpart: type) -> None:
        pass

    def __getattribute__(cls, name: str) -> Any:
        return getattr(_model(cls), name)

    def __setattr__(cls, name: str, value: object) -> None:
        setattr(_model(cls), name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(_model(cls), name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _model(cls)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _model(cls))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(_plain(subclass), _model(cls))

    def __eq__(cls, other: object) -> bool:
        return _plain(other) is _model(cls)

    def __hash__(cls) -> int:
        return hash(_model(cls))

    def __repr__(cls) -> str:
        return repr(_model(cls))


def _model(likeness: type) -> Any:
    return type.__getattribute__(likeness, "_model")


def _plain(cls: Any) -> Any:
    """The class itself, of a likeness or any other."""
    return _model(cls) if type(cls) is _Likeness else cls


copyreg.pickle(_Likeness, lambda likeness: (_plain, (_model(likeness),)))

_KEPT_AS = "_hotloop_likeness"


def likeness(cls: type, counterpart: type) -> type:
    """Of `cls`, whose instances isinstance() is to take for a `counterpart`. It is made once and kept on the class."""
    known: type | None = cls.__dict__.get(_KEPT_AS)
    if known is None or type.__getattribute__(known, "__base__") is not counterpart:
        known = _Likeness(cls, counterpart)
        type.__setattr__(cls, _KEPT_AS, known)
    return known


_class_of_object: Any = object.__dict__["__class__"]


def assign_class(instance: object, cls: type) -> None:
    """`instance.__class__ = cls`, where `__class__` is a property."""
    _class_of_object.__set__(instance, _plain(cls))
