"""Which event loop, Future, Task and selector the tests of this process get.

A worker process serves one implementation. It calls `choose` before it imports any of CPython's test modules, because
their class bodies already read `asyncio.EventLoop`.
"""

import asyncio
import asyncio.unix_events
import dataclasses
import os
import selectors
import sys
from collections.abc import Callable

# "+compiled": with the objects of hotloop.asyncio in asyncio's place.
IMPLEMENTATIONS = ("c", "python", "asyncio", "c+compiled", "asyncio+compiled")


@dataclasses.dataclass(frozen=True)
class Implementation:
    """The classes under test. `asyncio` is the interpreter's own set: the oracle that shows the harness to be sound."""

    name: str
    EventLoop: type[asyncio.SelectorEventLoop]
    Future: type[asyncio.Future]
    Task: type[asyncio.Task]
    Handle: type[asyncio.Handle]
    TimerHandle: type[asyncio.TimerHandle]
    selectors: dict[str, type[selectors.BaseSelector]]


_chosen: Implementation | None = None


def under_test() -> Implementation:
    assert _chosen is not None, "choose() comes before the test modules are imported"
    return _chosen


def choose(name: str) -> Implementation:
    """Load the implementation called `name` and make its loop asyncio's default in this process."""
    global _chosen
    loop, _, layer = name.partition("+")
    if layer:
        _install_compiled_layer()
    _chosen = _load_asyncio() if loop == "asyncio" else _load_hotloop(loop)
    _make_default(_chosen.EventLoop)
    return _chosen


def why_nothing_is_compiled() -> str | None:
    """Why there are no compiled objects for asyncio here; None if there are, or if the extension is missing: that is a
    failure."""
    if sys.version_info >= (3, 13) and not sys._is_gil_enabled():
        return "this Python runs without the GIL"
    return None


def _install_compiled_layer() -> None:
    os.environ["HOTLOOP_IMPL"] = "c"
    from hotloop._asyncio import compiled_layer

    compiled_layer.install()
    assert compiled_layer.compiled_asyncio().installed, compiled_layer.why_unavailable()


def _load_hotloop(name: str) -> Implementation:
    os.environ["HOTLOOP_IMPL"] = name  # as a user sets it; without the C extension hotloop raises ImportError for it
    import hotloop
    from hotloop import _impl

    assert hotloop.implementation == name, f"asked for {name}, got {hotloop.implementation}"
    return Implementation(
        name=name,
        EventLoop=hotloop.EventLoop,
        Future=hotloop.Future,
        Task=hotloop.Task,
        Handle=_impl.Handle,
        TimerHandle=_impl.TimerHandle,
        # Leave out the standard library's own: this implementation has no such selector on this platform.
        selectors={
            name: cls
            for name, cls in _selectors_of(hotloop).items()
            if name == "DefaultSelector" or cls.__module__ != "selectors"
        },
    )


def _load_asyncio() -> Implementation:
    return Implementation(
        name="asyncio",
        EventLoop=asyncio.SelectorEventLoop,
        Future=asyncio.Future,
        Task=asyncio.Task,
        Handle=asyncio.Handle,
        TimerHandle=asyncio.TimerHandle,
        selectors=_selectors_of(selectors),
    )


def _selectors_of(module) -> dict[str, type[selectors.BaseSelector]]:
    names = ("DefaultSelector", "EpollSelector", "KqueueSelector")
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _make_default(event_loop: type[asyncio.SelectorEventLoop]) -> None:
    """Hand out `event_loop` wherever asyncio or one of its tests would make the platform's default loop.

    CPython's test modules reset the event loop policy when they end, so the class that every fresh policy uses is
    replaced rather than the policy; and many tests name the loop class themselves.
    """
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = event_loop
    for module in (asyncio, asyncio.unix_events):
        for name in ("SelectorEventLoop", "EventLoop"):  # EventLoop is new in 3.13
            if hasattr(module, name):
                setattr(module, name, event_loop)


def count_new_loops(event_loop: type[asyncio.SelectorEventLoop]) -> Callable[[], int]:
    """Return a function that returns how many loops of this class were made since its last call."""
    made = 0
    original = event_loop.__init__

    def counting_init(self, *args, **kwargs):
        nonlocal made
        made += 1
        original(self, *args, **kwargs)

    def take() -> int:
        nonlocal made
        count, made = made, 0
        return count

    event_loop.__init__ = counting_init
    return take
