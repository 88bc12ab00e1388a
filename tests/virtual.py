"""Loops of hotloop.testing on each implementation, and on asyncio's own loop."""

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

from implementations import Implementation

from hotloop.testing.loop import EventLoop, make_event_loop_class


@functools.cache
def virtual_class(behind: type[asyncio.SelectorEventLoop]) -> type[EventLoop]:
    return make_event_loop_class(behind)


def run_virtual(impl: Implementation, main: Coroutine[Any, Any, Any], *, debug: bool | None = None, **options) -> Any:
    """hotloop.testing.run() on that implementation."""
    factory = functools.partial(virtual_class(impl.EventLoop), **options)
    with asyncio.Runner(loop_factory=factory, debug=debug) as runner:
        return runner.run(main)
