"""The `__class__` of futures and tasks.

isinstance(task, asyncio.Task) asks for the task's `__class__` if its type does not match. hotloop's Future and Task
answer with asyncio's classes. A program's subclass has a name, class attributes and a constructor of its own, which its
methods reach through `self.__class__`. Its `__class__` is therefore a likeness: a class that is derived from asyncio's
and forwards everything else to the subclass.

The methods of asyncio's compiled classes refuse such an object. As callbacks they are replaced by its own: see
own_method().
"""

import copyreg
from abc import ABCMeta
from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any


class _Likeness(type):
    """The metaclass of a likeness. A likeness has no instances, and forwards every operation to its model, the subclass
    that it was made for."""

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
    """The model of a likeness; any other class itself."""
    return _model(cls) if type(cls) is _Likeness else cls


copyreg.pickle(_Likeness, lambda likeness: (_plain, (_model(likeness),)))

_KEPT_AS = "_hotloop_likeness"


def likeness(cls: type, counterpart: type) -> type:
    """The likeness of `cls`, by which its instances pass for instances of `counterpart`. Made once, kept on `cls`."""
    known: type | None = cls.__dict__.get(_KEPT_AS)
    if known is None or type.__getattribute__(known, "__base__") is not counterpart:
        known = _Likeness(cls, counterpart)
        type.__setattr__(cls, _KEPT_AS, known)
        for base in cls.__mro__:
            if isinstance(base, ABCMeta):
                # It looks at a likeness's own bases, finds nothing, and keeps that for the model, which is equal. What
                # it has found for the model before it keeps for the likeness.
                issubclass(cls, base)
    return known


_class_of_object: Any = object.__dict__["__class__"]


def assign_class(instance: object, cls: type) -> None:
    """`instance.__class__ = cls` for an instance whose `__class__` is a property."""
    _class_of_object.__set__(instance, _plain(cls))


def own_method(callback: Callable[..., object], args: tuple[Any, ...]) -> Callable[..., object]:
    """What to call with `args`: for call_soon_threadsafe(asyncio.Future.set_result, future, 1), for example, the method
    of the future's own class. Any other callback is returned as it is."""
    if type(callback) is MethodDescriptorType and args:
        stated, own = callback.__objclass__, type(args[0]).__mro__
        if stated not in own and isinstance(args[0], stated):
            # Not that of a subclass, which may override it.
            counterpart = next((cls for cls in reversed(own) if cls.__name__ == stated.__name__), stated)
            found: Callable[..., object] = getattr(counterpart, callback.__name__)
            return found
    return callback
