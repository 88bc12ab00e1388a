"""hotloop makes asyncio programs faster without changing them.

    hotloop.run(main())                                         # in place of asyncio.run(main())
    asyncio.run(main(), loop_factory=hotloop.new_event_loop)    # the same, Python 3.12 and later
    python -m hotloop program.py                                # an unchanged program
    from hotloop import asyncio                                 # for `import asyncio`: with compiled queues, locks, ...

Each public name is imported on first use, for two reasons: `python -m hotloop --impl python ...` chooses the
implementation after this file has run, and naming EventLoopPolicy loads machinery that Python 3.14 deprecates. This
file imports neither `typing` nor `importlib`, which would take longer than everything else in it.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of every distribution that has a plugin. It warns if such a package
is imported already, as this one is under `python -m hotloop -m pytest`.
"""

import select
import sys

TYPE_CHECKING = False  # type checkers take a variable of this name as true
__version__ = "0.1.0"

_HOMES = {
    "run": "hotloop.runner",
    "new_event_loop": "hotloop.loop",
    "install": "hotloop.policy",
    "EventLoop": "hotloop.loop",
    "EventLoopPolicy": "hotloop.policy",
    "Future": "hotloop._impl",
    "Task": "hotloop._impl",
    "Metrics": "hotloop.metrics",
    "DefaultSelector": "hotloop._impl",
    "implementation": "hotloop._impl",
    "Stall": "hotloop.instruments.stalls",
    "watch_stalls": "hotloop.instruments.stalls",
    "format_tasks": "hotloop.instruments.format_tasks",
    "dump_tasks_on": "hotloop.instruments.dumps",
    "allow_inspection": "hotloop.instruments.inspection",
    "compiled_asyncio": "hotloop._asyncio.compiled_layer",
    "CompiledAsyncio": "hotloop._asyncio.compiled_layer",
}
# The selector of this platform; Windows has neither.
if hasattr(select, "epoll"):
    _HOMES["EpollSelector"] = "hotloop._impl"
if hasattr(select, "kqueue"):
    _HOMES["KqueueSelector"] = "hotloop._impl"

# Python 3.16 has no policies. Naming EventLoopPolicy raises an AttributeError that says so; `import *` must not.
__all__ = [name for name in _HOMES if name != "EventLoopPolicy" or sys.version_info < (3, 16)]

if TYPE_CHECKING:
    from hotloop._asyncio.compiled_layer import CompiledAsyncio as CompiledAsyncio
    from hotloop._asyncio.compiled_layer import compiled_asyncio as compiled_asyncio
    from hotloop._impl import DefaultSelector as DefaultSelector
    from hotloop._impl import Future as Future
    from hotloop._impl import Task as Task
    from hotloop._impl import implementation as implementation
    from hotloop.instruments.dumps import dump_tasks_on as dump_tasks_on
    from hotloop.instruments.format_tasks import format_tasks as format_tasks
    from hotloop.instruments.inspection import allow_inspection as allow_inspection
    from hotloop.instruments.stalls import Stall as Stall
    from hotloop.instruments.stalls import watch_stalls as watch_stalls
    from hotloop.loop import EventLoop as EventLoop
    from hotloop.loop import new_event_loop as new_event_loop
    from hotloop.metrics import Metrics as Metrics
    from hotloop.policy import EventLoopPolicy as EventLoopPolicy
    from hotloop.policy import install as install
    from hotloop.runner import run as run

    if sys.platform == "linux":
        from hotloop._impl import EpollSelector as EpollSelector
    elif sys.platform != "win32":
        from hotloop._impl import KqueueSelector as KqueueSelector

if not TYPE_CHECKING:  # otherwise type checkers would accept every name

    def __getattr__(name: str) -> object:
        try:
            home = _HOMES[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        from importlib import import_module

        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
