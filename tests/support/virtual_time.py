"""Loops of hotloop.testing on each implementation, and on asyncio's own loop."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from support.implementations import Implementation
from support.leftovers import close_checked

from hotloop.testing.loop import EventLoop, make_event_loop_class


@functools.cache
def virtual_class(behind: type[asyncio.SelectorEventLoop]) -> type[EventLoop]:
    return make_event_loop_class(behind)


def run_virtual(impl: Implementation, main: Coroutine[Any, Any, Any], *, debug: bool | None = None, **options) -> Any:
    """hotloop.testing.run() on an implementation."""
    factory = functools.partial(virtual_class(impl.EventLoop), **options)
    with asyncio.Runner(loop_factory=factory, debug=debug) as runner:
        return runner.run(main)


@pytest.fixture(name="run")
def _run(impl: Implementation) -> Callable[..., Any]:
    return functools.partial(run_virtual, impl)


@pytest.fixture(name="loop")
def _loop(impl: Implementation) -> Iterator[EventLoop]:
    """Replaces the fixture `loop` of other tests by a loop with virtual time."""
    loop = virtual_class(impl.EventLoop)()
    try:
        yield loop
    finally:
        close_checked(loop)
