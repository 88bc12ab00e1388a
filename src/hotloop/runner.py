"""hotloop.run(): asyncio.run() on hotloop's event loop, from Python 3.11 on and without policies."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hotloop.loop import new_event_loop

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """Run the coroutine `main` to its end on a new event loop and return its result, as asyncio.run() does.

    Remaining tasks are cancelled, asynchronous generators and the default executor shut down and the loop closed.
    `debug` sets the loop's debug mode; None leaves it to PYTHONASYNCIODEBUG and Python's development mode. Raises
    RuntimeError where an event loop is already running in this thread.
    """
    # Runner would notice too, but only after it has made a loop.
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("hotloop.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=new_event_loop) as runner:
        return runner.run(main)
