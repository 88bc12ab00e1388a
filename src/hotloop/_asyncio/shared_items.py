"""Copies of sets and mappings that another thread may change meanwhile."""

from collections.abc import Iterable
from typing import TypeVar

_T = TypeVar("_T")

_ATTEMPTS = 1000
"""As many as asyncio.all_tasks() makes."""


def copy_of(items: Iterable[_T]) -> list[_T]:
    """A list of the items of a WeakSet, of a selector's map or the like.

    Their iteration is Python code, so another thread may add or remove items between two steps of it: then it begins
    again, for which `items` must not be an iterator. Raises RuntimeError or KeyError if that never ends."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return list(items)
        except (KeyError, RuntimeError):
            pass
    return list(items)
