"""Lets asyncio.all_tasks() find tasks that are not registered one by one.

`asyncio.tasks._register_task()` adds a task to a WeakSet written in Python, which can take longer than creating the
task. A core that keeps a list of its live tasks anyway can have asyncio iterate over that list instead: add_source().

The WeakSet is a Python object even if only C code has a name for it (3.14 and later). Registering an object makes a
weak reference to it, whose callback is the WeakSet's `_remove` function, which holds the WeakSet. This module assigns
a subclass to the WeakSet's `__class__`; iterating over the subclass also yields the tasks of the sources.

None of this is documented. So it is tried first, with a probe in place of a task that all_tasks() must then find. If
that fails, nothing is changed and add_source() returns False.
"""

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Source = Callable[[], Iterable[Any]]

_tasks: Any = asyncio.tasks  # with its private names


class _Probe:
    """The minimum that all_tasks() accepts as a task; it is its own loop."""

    _asyncio_future_blocking = False

    def get_loop(self) -> "_Probe":
        return self

    def done(self) -> bool:
        return False


class _TrackedTasks(weakref.WeakSet[Any]):
    """asyncio's WeakSet of tasks, with an iteration that includes the tasks of the sources."""

    def __iter__(self) -> Iterator[Any]:
        for source in _sources:
            yield from source()
        yield from super().__iter__()


_lock = threading.Lock()
_sources: tuple[Source, ...] = ()  # replaced, never changed: other threads may be iterating over it
_tracked: weakref.WeakSet[Any] | None = None  # asyncio's WeakSet, once it is a _TrackedTasks


def add_source(source: Source) -> bool:
    """Have asyncio.all_tasks() include the tasks that `source()` returns.

    It is called in any thread, for the tasks of every loop; all_tasks() itself leaves out tasks that are done or belong
    to another loop. Returns False, with nothing changed, if this is not possible: then tasks must be registered with
    asyncio.tasks._register_task(). Adding a source again has no effect."""
    global _sources
    with _lock:
        if not _take_over():
            return False
        if source not in _sources:
            _sources = (*_sources, source)
        return True


def _take_over() -> bool:
    """Make asyncio's WeakSet a _TrackedTasks, unless it is one already."""
    global _tracked
    if _tracked is not None:
        return True
    if "free-threading build" in sys.version:
        # (Importing sysconfig to ask for Py_GIL_DISABLED takes longer than a dozen modules of hotloop.)
        # There, all_tasks() stops the world or copies under locks, which the sources would not respect.
        return False
    try:
        registered = _find_registered_tasks()
        if type(registered) is not weakref.WeakSet:
            return False
        registered.__class__ = _TrackedTasks
        try:
            if _works():
                _tracked = registered
        finally:
            if _tracked is None:
                registered.__class__ = weakref.WeakSet
    except Exception:
        # Whatever the reason, this asyncio is built differently, and tasks have to be registered one by one.
        return False
    return _tracked is not None


def _find_registered_tasks() -> Any:
    probe = _Probe()
    _tasks._register_task(probe)
    try:
        [reference] = weakref.getweakrefs(probe)
        remove: Any = reference.__callback__
        [weak_set] = remove.__defaults__
        return weak_set()
    finally:
        _tasks._unregister_task(probe)


def _works() -> bool:
    """Whether all_tasks() finds the tasks of a source."""
    global _sources
    probe = _Probe()
    before = _sources
    _sources = (*before, lambda: [probe])
    try:
        return bool(_tasks.all_tasks(probe) == {probe})
    finally:
        _sources = before
