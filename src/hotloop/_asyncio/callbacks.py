"""What a callback is called, and where its code is: for those who report one that took long."""

import asyncio
import functools
import inspect
from contextlib import suppress
from types import CodeType
from typing import Any

Description = tuple[str | None, str | None, int | None, str | None]
"""Qualified name, file, line and the name of the task; None: not known, or no task."""

_UNKNOWN: Description = (None, None, None, None)
# What of a protocol may have been called.
_RECEIVERS = ("data_received", "buffer_updated", "datagram_received", "pipe_data_received", "connection_lost")


def describe(item: Any) -> Description:
    """Of a handle, a task or a transport that a loop has run: text and numbers only, so that nothing is kept alive."""
    try:
        return _UNKNOWN if item is None else _describe(item)
    except Exception:
        # Callbacks may be anything, with attributes that raise.
        return _UNKNOWN


def _describe(item: Any) -> Description:
    if isinstance(item, asyncio.BaseTransport):
        return _of_protocol(item)
    callback = _unwrapped(getattr(item, "_callback", None))
    task = item if isinstance(item, asyncio.Task) else getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return (*_place(coroutine, _code_of_coroutine(coroutine)), task.get_name())
    # None if it was cancelled while it ran, which is allowed.
    return _UNKNOWN if callback is None else (*_place(callback, _code_of(callback)), None)


def _of_protocol(transport: Any) -> Description:
    """A transport's turn is its protocol's, which may have been called for anything."""
    cls = type(transport.get_protocol())
    if cls is type(None):
        cls = type(transport)
    code = next(filter(None, (_code_of(getattr(cls, name, None)) for name in _RECEIVERS)), None)
    return (cls.__qualname__, *_file_and_line(code), None)


def _unwrapped(callback: Any) -> Any:
    while isinstance(callback, functools.partial):
        callback = callback.func
    return callback


def _place(called: Any, code: CodeType | None) -> tuple[str, str | None, int | None]:
    name = getattr(called, "__qualname__", None)
    return (name if isinstance(name, str) else type(called).__qualname__, *_file_and_line(code))


def _file_and_line(code: CodeType | None) -> tuple[str | None, int | None]:
    return (None, None) if code is None else (code.co_filename, code.co_firstlineno)


def _code_of(called: Any) -> CodeType | None:
    with suppress(ValueError):
        called = inspect.unwrap(called)
    called = getattr(called, "__func__", called)
    code = getattr(called, "__code__", None)
    if code is None:
        # An object with a __call__().
        code = getattr(getattr(type(called), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None


def _code_of_coroutine(coroutine: Any) -> CodeType | None:
    for name in ("cr_code", "gi_code", "ag_code"):
        code = getattr(coroutine, name, None)
        if isinstance(code, CodeType):
            return code
    return None


_WATCHERS = {"ProcessWatcher": "process", "SocketWatcher": "sock_method", "CallbackWatcher": "transport"}
_METHODS = {
    "_accept_connection": "server",
    "_do_wait": "process",
    "wake_up": "sock_method",
}


def kind_of_watcher(data: Any) -> str | None:
    """For whom a descriptor is watched, by the data that the selector keeps of it: see Metrics.watched.

    None for the loop's own, by which other threads wake it."""
    if not isinstance(data, tuple):
        # One of the compiled core's; that for callbacks says so itself unless one of them is a transport.
        return _WATCHERS.get(type(data).__name__, "other")
    callback = next((_unwrapped(getattr(handle, "_callback", None)) for handle in data if handle is not None), None)
    name = getattr(callback, "__name__", "")
    if name in ("_read_from_self", "_read_from_self_threadsafe"):
        return None
    if isinstance(getattr(callback, "__self__", None), asyncio.BaseTransport):
        return "transport"
    return "sock_method" if name.startswith("_sock_") else _METHODS.get(name, "callback")
