"""How asyncio.all_tasks() gets to know tasks that are not registered one by one.

`asyncio.tasks._register_task()` adds a task to a WeakSet written in Python, which can take longer than creating the
task. A core that keeps a list of its live tasks anyway can have asyncio iterate over that list instead: add_source().
This is the one place that reaches into asyncio for it, and it does so like this.

The WeakSet is a Python object even where only C code has a name for it (3.14 and later). Registering an object makes a
weak reference to it, whose callback is the WeakSet's `_remove` function, which holds the WeakSet. An instance of a
Python class can be given a subclass, and that subclass's iteration also yields what the sources have.

None of this is documented, so it is tried before it is relied on, with a task of our own that all_tasks() must then
find. Where that fails nothing is changed, and add_source() says so.
"""

import asyncio
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Source = Callable[[], Iterable[Any]]

_tasks: Any = asyncio.tasks  # with its private names


class _Probe:
    """The least that all_tasks() takes for a task; its loop is itself."""

    _asyncio_future_blocking = False

    def get_loop(self) -> "_Probe":
        return self

    def done(self) -> bool:
        return False


class _TrackedTasks(weakref.WeakSet[Any]):
    """asyncio's WeakSet of tasks, whose iteration goes on to the tasks of the sources."""

    def __iter__(self) -> Iterator[Any]:
        for source in _sources:
            yield from source()
        yield from super().__iter__()


_lock = threading.Lock()
_sources: tuple[Source, ...] = ()  # replaced, never changed: iterations in other threads keep the one they have
_tracked: weakref.WeakSet[Any] | None = None  # asyncio's WeakSet, once it is ours


def add_source(source: Source) -> bool:
    """Have asyncio.all_tasks() also look at the tasks that `source()` returns.

    It is called in any thread, for the tasks of every loop; tasks that are done, or of another loop than the one asked
    for, are sorted out by all_tasks() itself. Returns False, with nothing changed, where this cannot be had: then tasks
    must be registered with asyncio.tasks._register_task(). Adding a source twice is adding it once."""
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
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # There, all_tasks() stops the world or copies under locks that an iteration of ours would not respect.
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
        # Any surprise in an asyncio that is put together differently has the same meaning, and the same remedy.
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
    """Whether all_tasks() finds the task of a source."""
    global _sources
    probe = _Probe()
    before = _sources
    _sources = (*before, lambda: [probe])
    try:
        return bool(_tasks.all_tasks(probe) == {probe})
    finally:
        _sources = before
