"""Whether an object is freed, by the garbage collector or without it."""

import contextlib
import gc
import weakref
from collections.abc import Iterator


class Reference(weakref.ref):
    """A weak reference that knows what it referred to."""

    __slots__ = ("address", "kind")

    def __init__(self, target: object) -> None:
        super().__init__(target)
        self.kind, self.address = type(target), id(target)


def collected(reference: Reference) -> bool:
    """Whether an object is freed. The collector clears weak references also to what it then cannot free."""
    gc.collect()
    found = (thing for thing in gc.get_objects() if type(thing) is reference.kind and id(thing) == reference.address)
    return reference() is None and not any(True for _ in found)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Only reference counts free objects here."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
