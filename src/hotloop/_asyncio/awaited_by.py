"""Finds the tasks that wait for a future: the edges of asyncio's call graph (asyncio.capture_call_graph(), Python 3.14
and later).

asyncio's futures record each waiter as it comes and goes. hotloop's record nothing, so that running tasks pay nothing:
each waiter has added a callback to the future, and the callback leads to the waiting task. asyncio's
future_add_to_awaited_by(), by which libraries tell of others that wait, ignores futures that are not its own; so what
stands behind the callbacks of such libraries is looked for here, too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any


def awaited_by(future: Any) -> set[Any] | None:
    """The tasks, or futures, that wait for `future`, a future with a list of (callback, context) in `_callbacks`.

    None if there are none, as in asyncio."""
    found: set[Any] = set()
    for callback, _ in future._callbacks or ():
        found.update(_waiters(future, callback))
    found.discard(future)
    return found or None


def _waiters(future: Any, callback: Callable[..., object]) -> Iterator[Any]:
    owner = getattr(callback, "__self__", None)
    if owner is not None:
        yield from _owner_waiters(future, owner)
    elif isinstance(callback, partial):
        # wait_for() waits for the end of a task that it has cancelled: partial(_release_waiter, waiter).
        for argument in callback.args:
            if _is_future(argument):
                yield from _told_or_found(argument) or ()
    elif isinstance(callback, FunctionType):
        yield from _closure_waiters(callback)


def _owner_waiters(future: Any, owner: Any) -> Iterator[Any]:
    """The waiters behind a bound method, by its `__self__`: a task whose wakeup it is, or a helper that a task uses."""
    if getattr(owner, "_fut_waiter", None) is future:
        yield owner
        return
    # asyncio's TaskGroup, the iterator of as_completed(), and aiotools' TaskScope.
    for name in ("_parent_task", "_cur_task", "_host_task"):
        task = getattr(owner, name, None)
        if _is_future(task):
            yield task


def _closure_waiters(callback: FunctionType) -> Iterator[Any]:
    """The waiters behind a function that was made for one future or one group of them, by what it refers to."""
    package = (callback.__module__ or "").partition(".")[0]
    if package == "asyncio":
        yield from _waiters_by_asyncio(dict(_closure_variables(callback)))
    elif package == "anyio":
        yield from _waiters_by_anyio(dict(_closure_variables(callback)))


def _waiters_by_asyncio(variables: dict[str, Any]) -> Iterator[Any]:
    """The task that has called gather(), wait(), shield() or staggered_race()."""
    outer: Any = variables.get("outer")
    if _is_future(outer) and outer.done():
        return  # an exception has ended the gather() before this future was done
    for name in ("cur_task", "parent_task"):
        task = variables.get(name)
        if _is_future(task):
            yield task
            return
    # Before Python 3.14 these functions know only the future that the task waits for.
    for name in ("outer", "waiter"):
        between = variables.get(name)
        if _is_future(between):
            yield from _told_or_found(between) or ()


def _waiters_by_anyio(variables: dict[str, Any]) -> Iterator[Any]:
    """The task of a task group of anyio's."""
    task = getattr(getattr(variables.get("self"), "cancel_scope", None), "_host_task", None)
    if _is_future(task):
        yield task


def _told_or_found(future: Any) -> set[Any] | None:
    """The waiters of a future of either kind: since Python 3.14, asyncio's futures record their waiters."""
    waiting: set[Any] | None = getattr(future, "_asyncio_awaited_by", None)
    return awaited_by(future) if waiting is None and hasattr(future, "_callbacks") else waiting


def _closure_variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # the variable is not set yet


def _is_future(candidate: Any) -> bool:
    return hasattr(type(candidate), "_asyncio_future_blocking")
