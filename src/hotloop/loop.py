"""The event loop class: a core that runs callbacks, tasks and timers, in front of asyncio.SelectorEventLoop.

On Windows it is asyncio's own, if there is no reason for another: see _asyncio/platform_loop.

The core comes first in the method resolution order and overrides what runs per callback, per task step, per packet or
per timer. Everything else is the standard library's own code, and so follows the running Python by construction.
"""

import asyncio
import functools
import os
import weakref
from collections.abc import Callable
from importlib import import_module
from selectors import BaseSelector
from typing import TYPE_CHECKING, Any, Literal

from hotloop._asyncio.classes import own_method
from hotloop._asyncio.literal_connection import LiteralConnections
from hotloop._asyncio.literal_resolver import make_resolver
from hotloop._asyncio.name_resolver import NameResolver, NameThreads, check_size
from hotloop._asyncio.platform_loop import PlatformLoop
from hotloop._asyncio.process_exit import ProcessExits, waits_for_pipes
from hotloop._asyncio.sendfile import SendfileFallback
from hotloop._asyncio.start_tls import StartTls
from hotloop._impl import NetworkCore, implementation, name_threads, uses_asyncio_tasks
from hotloop._loop_metrics import LoopMetrics

if TYPE_CHECKING:

    class EventLoop(LoopMetrics, NetworkCore, asyncio.SelectorEventLoop):
        _asyncio_tasks: type
        _name_threads: NameThreads

        def __init__(self, selector: BaseSelector | None = None) -> None: ...

    EventLoopWithCore = EventLoop


any_was_made = False
"""Whether this process has made a loop of hotloop's."""
alive: "weakref.WeakSet[EventLoop]" = weakref.WeakSet()
"""The loops of this process."""


def properties_of(core: type) -> dict[str, Any]:
    """The core's properties: attributes of asyncio's loop that the core reads and writes, too."""
    return {
        name: value
        for base in reversed(core.__mro__)
        for name, value in vars(base).items()
        if hasattr(type(value), "__set__") and not name.startswith("__")
    }


def make_event_loop_class(core: type[NetworkCore]) -> type["EventLoop"]:
    """The event loop class that is based on `core`, the NetworkCore of hotloop._c or of hotloop._pure."""
    package = core.__module__.removesuffix(".network.network_core")
    default_selector = import_module(f"{package}.poller.selector").DefaultSelector
    resolver = make_resolver(import_module(f"{package}.system.address"))
    asyncio_tasks = import_module(f"{package}.loop.asyncio_tasks").AsyncioTasks

    # The pure implementation has asyncio's own way from an address to a transport.
    connections = (LiteralConnections,) if hasattr(core, "_literal_address") else ()
    processes = (ProcessExits,) if waits_for_pipes else ()
    state = properties_of(core)
    mixins = (*connections, resolver, NameResolver, SendfileFallback, StartTls, *processes, LoopMetrics)

    class EventLoop(core, *mixins, asyncio.SelectorEventLoop):  # type: ignore[misc, valid-type]
        """asyncio's event loop, made faster.

        `selector` is any object with the API of the selectors module; the default is hotloop's own selector.
        """

        _asyncio_tasks = asyncio_tasks

        def __init_subclass__(cls, **keywords: Any) -> None:
            # A class attribute such as `_closed = False` would hide the property, and so what asyncio's methods set.
            super().__init_subclass__(**keywords)
            for name in state:
                if not hasattr(type(getattr(cls, name)), "__set__"):
                    setattr(cls, name, state[name])

        def __init__(self, selector: BaseSelector | None = None) -> None:
            global any_was_made
            any_was_made = True
            try:
                self._name_threads = NameThreads(name_threads)
                super().__init__(default_selector() if selector is None else selector)
            except BaseException:
                self._give_up()
                raise
            alive.add(self)

        def add_signal_handler(  # type: ignore[override]
            self, sig: int, callback: Callable[..., object], *args: Any
        ) -> None:
            """Call `callback` in the loop when the signal comes. See loop.add_signal_handler()."""
            # asyncio makes a handle of its own for the callback.
            super().add_signal_handler(sig, own_method(callback, args), *args)

        def _give_up(self) -> None:
            """Release the resources of a loop whose constructor failed. __del__() must not call close() on it, which
            expects a complete loop."""
            for name in ("_ssock", "_csock", "_selector"):
                resource = getattr(self, name, None)
                if resource is not None:
                    resource.close()
            self._closed = True

        def _close_self_pipe(self) -> None:
            # The garbage collector may close the sockets of a dropped loop before __del__() closes the loop.
            if self._ssock.fileno() >= 0:
                super()._close_self_pipe()

    EventLoop.__qualname__ = "EventLoop"
    return EventLoop


def make_class_with(part: type, event_loop: type["EventLoop"]) -> type["EventLoop"]:
    """`event_loop` with `part` in front of it."""

    class EventLoop(part, event_loop):  # type: ignore[misc, valid-type]
        __doc__ = event_loop.__doc__

    EventLoop.__qualname__ = "EventLoop"
    return EventLoop


def make_class_with_asyncio_tasks(event_loop: type["EventLoop"]) -> type["EventLoop"]:
    """`event_loop` with asyncio's own futures and tasks."""
    return make_class_with(event_loop._asyncio_tasks, event_loop)


def make_platform_loop_class() -> type["EventLoop"]:
    """The event loop class of a platform for which hotloop has no better one."""

    class EventLoop(PlatformLoop, NameResolver, asyncio.ProactorEventLoop):  # type: ignore[misc, name-defined]
        """asyncio's event loop of this platform, which resolves names in threads of their own."""

        def __init__(self, proactor: Any = None) -> None:
            global any_was_made
            any_was_made = True
            self._name_threads = NameThreads(name_threads)
            super().__init__(proactor)

    EventLoop.__qualname__ = "EventLoop"
    return EventLoop


if not TYPE_CHECKING:

    def _with_instruments(event_loop: type["EventLoop"]) -> type["EventLoop"]:
        """`event_loop` with what the environment asks for."""
        if os.environ.get("HOTLOOP_STALL_AFTER"):
            event_loop = make_class_with(import_module("hotloop.instruments.stalls").WatchedLoop, event_loop)
        if os.environ.get("HOTLOOP_DUMP_TASKS_ON"):
            event_loop = make_class_with(import_module("hotloop.instruments.dumps").DumpedLoop, event_loop)
        if os.environ.get("HOTLOOP_INSPECT"):
            event_loop = make_class_with(import_module("hotloop.instruments.inspection").InspectedLoop, event_loop)
        return event_loop

    # hotloop.testing needs a loop that has a core, also where hotloop.EventLoop is asyncio's own.
    EventLoopWithCore = make_event_loop_class(NetworkCore)
    if uses_asyncio_tasks:
        EventLoopWithCore = make_class_with_asyncio_tasks(EventLoopWithCore)
    EventLoopWithCore = _with_instruments(EventLoopWithCore)
    EventLoop = EventLoopWithCore
    if implementation == "asyncio":
        EventLoop = _with_instruments(make_platform_loop_class())


@functools.cache
def class_with_tasks(tasks: Literal["asyncio"] | None) -> type[EventLoop]:
    """The class of the loops that new_event_loop() makes."""
    if tasks not in (None, "asyncio"):
        raise ValueError(f"tasks must be 'asyncio' or None, not {tasks!r}")
    return EventLoop if tasks is None or uses_asyncio_tasks else make_class_with_asyncio_tasks(EventLoop)


def new_event_loop(*, tasks: Literal["asyncio"] | None = None, name_threads: int | None = None) -> EventLoop:
    """Return a new event loop; intended as a `loop_factory`.

    With `tasks="asyncio"` its futures and tasks are asyncio's own, which tools see that look into the process from
    outside. None leaves the decision to the environment variable HOTLOOP_TASKS (asyncio, or hotloop, the default).
    Raises ValueError for any other value.

    `name_threads` is the number of threads in which the loop resolves names. They start as they are needed. With 0 the
    default executor resolves names, as under asyncio. None leaves the decision to the environment variable
    HOTLOOP_NAME_THREADS; its default is as many threads as asyncio's default executor has. Raises TypeError if it is no
    number, ValueError if it is negative.
    """
    check_size(name_threads)
    loop = EventLoop() if tasks is None else class_with_tasks(tasks)()
    if name_threads is not None:
        loop._name_threads.size = name_threads
    return loop
