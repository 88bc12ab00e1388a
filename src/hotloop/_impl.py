"""Chooses between the compiled implementation, hotloop._c, and the one in Python, hotloop._pure.

HOTLOOP_IMPL=c        the compiled implementation, or ImportError
HOTLOOP_IMPL=python   the pure implementation, including its Future and Task: pdb can step through everything
unset or empty        the compiled implementation if it is installed, otherwise the pure one

HOTLOOP_TASKS=asyncio  the loop hands out asyncio's own Future and Task, whichever implementation runs
HOTLOOP_TASKS=hotloop  or unset: hotloop's

HOTLOOP_NAME_THREADS=4  the loop resolves names in at most so many threads; 0: in the default executor, like asyncio

HOTLOOP_TLS=ssl  or unset: see tls/direct_engine.pyx, which reads it at the first TLS connection

If only the missing extension leads to the pure implementation, its loop hands out the interpreter's own Future and
Task, provided that those are compiled: hotloop must not make a program slower. If the extension is installed but does
not load, a RuntimeWarning reports it.

On Windows the loop is asyncio's own in that case, the implementation "asyncio": see _asyncio/platform_loop.

The extension is for the main interpreter. A subinterpreter does not even try: one that shares the main interpreter's
GIL would succeed if it came first, and so take the extension from the main interpreter.
"""

import asyncio
import os
import select
import selectors
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotloop._c.network.network_core import NetworkCore as NetworkCore
    from hotloop._c.poller.selector import DefaultSelector as DefaultSelector
    from hotloop._c.scheduler.handles import Handle as Handle
    from hotloop._c.scheduler.timers import TimerHandle as TimerHandle
    from hotloop._c.tasks.future import Future as Future
    from hotloop._c.tasks.task import Task as Task

    if sys.platform == "linux":
        from hotloop._c.poller.selector import EpollSelector as EpollSelector
    elif sys.platform != "win32":
        from hotloop._c.poller.selector import KqueueSelector as KqueueSelector

# In the order of their dependencies. If the first is missing, no extension is installed.
_PARTS = (
    "scheduler.ready_queue",
    "scheduler.handles",
    "scheduler.timers",
    "tasks.future",
    "tasks.task",
    "poller.selector",
    "system.address",
    "loop.asyncio_tasks",
    "network.network_core",
)
_NOT_INSTALLED = "no compiled extension is installed for this interpreter"
_OTHER_INTERPRETER = "the compiled extension is for the main interpreter, and this is a subinterpreter"


def _load_extension() -> str | None:
    """Import the modules of _PARTS. Returns None on success, otherwise the reason why there is no extension."""
    if in_subinterpreter():
        return _OTHER_INTERPRETER
    try:
        for part in _PARTS:
            import_module(f"hotloop._c.{part}")
    except ModuleNotFoundError as error:
        if error.name == f"hotloop._c.{_PARTS[0]}":
            return _NOT_INSTALLED
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        # An extension built against another version fails in many ways: an undefined symbol is an ImportError, a struct
        # of another size a ValueError, a missing function an AttributeError.
        return f"{type(error).__name__}: {error}"
    return None


def in_subinterpreter() -> bool:
    """Whether this is another interpreter than the process's first."""
    import _thread

    if hasattr(_thread, "_is_main_interpreter"):  # CPython 3.12 and later
        return not _thread._is_main_interpreter()
    with suppress(ImportError):
        interpreters = import_module("_xxsubinterpreters")
        return bool(interpreters.get_current() != interpreters.get_main())
    return False


def _choose() -> tuple[str, str]:
    """The implementation to use, and the reason for it."""
    asked = os.environ.get("HOTLOOP_IMPL", "")
    if asked not in ("", "c", "python"):
        message = f"HOTLOOP_IMPL must be 'c' or 'python', or unset for the automatic choice; it is {asked!r}"
        raise ImportError(message, name="hotloop._c")
    if asked == "python":
        return "python", "HOTLOOP_IMPL=python"
    problem = _load_extension()
    if problem is None:
        return "c", "HOTLOOP_IMPL=c" if asked else "the compiled extension is installed"
    if asked:
        raise ImportError(f"HOTLOOP_IMPL=c cannot be met: {problem}", name="hotloop._c")
    if problem not in (_NOT_INSTALLED, _OTHER_INTERPRETER):
        message = f"hotloop's compiled extension does not load, falling back to Python ({problem})"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    if sys.platform == "win32":
        return "asyncio", f"{problem}, and on Windows asyncio's own loop can do more than the pure implementation"
    return "python", problem


def _choose_tasks() -> bool:
    """Whether the loop hands out asyncio's own futures and tasks."""
    asked = os.environ.get("HOTLOOP_TASKS", "")
    if asked not in ("", "asyncio", "hotloop"):
        message = f"HOTLOOP_TASKS must be 'asyncio' or 'hotloop', or unset; it is {asked!r}"
        raise ImportError(message, name="hotloop._c")
    if asked:
        return asked == "asyncio"
    return implementation == "asyncio" or (implementation == "python" and _leaves_tasks_to_asyncio())


def _leaves_tasks_to_asyncio() -> bool:
    """Whether the pure implementation has asyncio's compiled tasks, because its own, in Python, were not asked for."""
    asked = os.environ.get("HOTLOOP_IMPL") or os.environ.get("HOTLOOP_TASKS") == "hotloop"
    return has_compiled_tasks and not asked


def _choose_name_threads() -> int | None:
    """How many threads of its own a loop has for names; None: as many as asyncio's default executor."""
    asked = os.environ.get("HOTLOOP_NAME_THREADS", "")
    if asked and not asked.isdecimal():
        message = f"HOTLOOP_NAME_THREADS must be a number of threads, or unset; it is {asked!r}"
        raise ImportError(message, name="hotloop._c")
    return int(asked) if asked else None


def _check_tls() -> None:
    """Report a wrong value at the program's start rather than in its first TLS connection."""
    asked = os.environ.get("HOTLOOP_TLS", "")
    if asked not in ("", "ssl"):
        raise ImportError(f"HOTLOOP_TLS must be 'ssl' or unset; it is {asked!r}", name="hotloop._c")


# "c", "python" or "asyncio", and the reason that `python -m hotloop info` shows beside it.
implementation, reason = _choose()
has_compiled_tasks = asyncio.Task is not asyncio.tasks._PyTask  # type: ignore[attr-defined]
uses_asyncio_tasks = _choose_tasks()
name_threads = _choose_name_threads()
_check_tls()

if not TYPE_CHECKING:
    _package = "hotloop._c" if implementation == "c" else "hotloop._pure"
    _network = import_module(f"{_package}.network.network_core")
    _selector = import_module(f"{_package}.poller.selector")
    Handle = import_module(f"{_package}.scheduler.handles").Handle
    TimerHandle = import_module(f"{_package}.scheduler.timers").TimerHandle
    NetworkCore = _network.NetworkCore
    # hotloop.testing needs a core for its loops, also where hotloop.EventLoop has none.
    if implementation == "c" or (implementation == "python" and not _leaves_tasks_to_asyncio()):
        Future = import_module(f"{_package}.tasks.future").Future
        Task = import_module(f"{_package}.tasks.task").Task
    else:
        Future = asyncio.Future
        Task = asyncio.Task
    DefaultSelector = _selector.DefaultSelector
    # If the extension has no backend for the platform's selector, its DefaultSelector is the standard library's too.
    if hasattr(select, "epoll"):
        EpollSelector = getattr(_selector, "EpollSelector", selectors.EpollSelector)
    if hasattr(select, "kqueue"):
        KqueueSelector = getattr(_selector, "KqueueSelector", selectors.KqueueSelector)
