"""The name of a callback and the place of its code, for reports of slow callbacks; and what a descriptor's callback is
for."""

import asyncio
import functools
import sys
from types import BuiltinMethodType, CodeType, MethodType
from typing import Any

Description = tuple[str | None, str | None, int | None, str | None]
"""Qualified name, file, line and task name. None: not known, or no task."""

_UNKNOWN: Description = (None, None, None, None)
# Decorators around a callback that are looked through. A wrapper may wrap itself.
_MAX_WRAPPERS = 100
# Methods of a protocol that its transport may have called.
_RECEIVERS = ("data_received", "buffer_updated", "datagram_received", "pipe_data_received", "connection_lost")


def describe(item: Any) -> Description:
    """Describe a handle, task or transport that a loop has run, in text and numbers only: nothing is kept alive."""
    try:
        return _UNKNOWN if item is None else _describe(item)
    except Exception:
        # A callback may be any object, and its attributes may raise.
        return _UNKNOWN


def _describe(item: Any) -> Description:
    if isinstance(item, asyncio.BaseTransport):
        return _of_protocol(item)
    callback = _unwrapped(getattr(item, "_callback", None))
    task = item if isinstance(item, asyncio.Task) else getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return (*_place(coroutine, _code_of_coroutine(coroutine)), task.get_name())
    # A handle that was cancelled while it ran has no callback any more.
    return _UNKNOWN if callback is None else (*_place(callback, _code_of(callback)), None)


def _of_protocol(transport: Any) -> Description:
    """A transport spends its turn in its protocol; which method it has called is not known."""
    cls = type(transport.get_protocol())
    if cls is type(None):
        cls = type(transport)
    # Without a generator expression: if memory is short, ending one before its end prints "Exception ignored in".
    for name in _RECEIVERS:
        code = _code_of(getattr(cls, name, None))
        if code is not None:
            break
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
    # Not inspect.unwrap(), which makes a function: where there is no memory for that, CPython 3.12 and 3.13.0 free the
    # function's code although unwrap() still has it, and the next call crashes.
    for _ in range(_MAX_WRAPPERS):
        if not hasattr(called, "__wrapped__"):
            break
        called = called.__wrapped__
    called = getattr(called, "__func__", called)
    code = getattr(called, "__code__", None)
    if code is None:
        # The class may have a __call__().
        code = getattr(getattr(type(called), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None


def _code_of_coroutine(coroutine: Any) -> CodeType | None:
    for name in ("cr_code", "gi_code", "ag_code"):
        code = getattr(coroutine, name, None)
        if isinstance(code, CodeType):
            return code
    return None


# The classes of the compiled core that watch a descriptor. A CallbackWatcher has no pair of handles only if a transport
# is one of its callbacks.
_WATCHERS = {"ProcessWatcher": "process", "SocketWatcher": "sock_method", "CallbackWatcher": "transport"}
_SOCKET_OPERATION = "hotloop._c.network.socket_operation"


def kind_of_watcher(data: Any) -> str | None:
    """The purpose for which a descriptor is watched, by the data that the selector keeps with it: see Metrics.watched.

    None for the loop's self-pipe."""
    if not isinstance(data, tuple):
        cls = type(data)
        return _WATCHERS.get(cls.__name__, "other") if cls.__module__.startswith("hotloop._c.") else "other"
    callback = next((_unwrapped(getattr(handle, "_callback", None)) for handle in data if handle is not None), None)
    # Any other callback is the program's, whatever its name.
    if isinstance(callback, (BuiltinMethodType, MethodType)):
        return _kind_of_method(callback.__self__, callback)
    # A socket method waits by a callback on a loop with another selector than hotloop's, and beside other callbacks.
    module = sys.modules.get(_SOCKET_OPERATION)
    return "sock_method" if module is not None and callback is module.wake_up else "callback"


def _kind_of_method(owner: Any, method: Any) -> str | None:
    if isinstance(owner, asyncio.BaseTransport):
        return "transport"
    if _is_child_watcher(owner):
        return "process"
    if not isinstance(owner, asyncio.AbstractEventLoop):
        return "callback"
    name = getattr(method, "__name__", "")
    if name in ("_read_from_self", "_read_from_self_threadsafe"):
        return None
    if name == "_accept_connection":
        return "server"
    return "sock_method" if name.startswith("_sock_") else "callback"


def _is_child_watcher(owner: Any) -> bool:
    """Whether it is asyncio's, which watches pidfds. Its class has an underscore since Python 3.14."""
    cls = type(owner)
    return cls.__module__ == "asyncio.unix_events" and cls.__name__.endswith("PidfdChildWatcher")
