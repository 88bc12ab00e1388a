"""hotloop.run(): asyncio.run() on hotloop's event loop, from Python 3.11 on and without policies."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from hotloop.loop import new_event_loop

if TYPE_CHECKING:
    from hotloop.instruments.stalls import Stall

_T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    stall_after: float | None = None,
    stall_report: "Callable[[Stall], object] | None" = None,
    dump_tasks_on: int | None = None,
    inspect: "bool | str | os.PathLike[str] | None" = None,
) -> _T:
    """Run the coroutine `main` to its end on a new event loop and return its result, as asyncio.run() does.

    Remaining tasks are cancelled, asynchronous generators and the default executor shut down and the loop closed.
    `debug` sets the loop's debug mode; None leaves it to PYTHONASYNCIODEBUG and Python's development mode. Raises
    RuntimeError where an event loop is already running in this thread.

    `stall_after` (in seconds) has every callback reported that blocks the loop for longer, to `stall_report` if there
    is one: see watch_stalls(). `dump_tasks_on` is a signal at which all tasks are written to the standard error: see
    dump_tasks_on(). `inspect` opens a socket for `python -m hotloop top`, at the path that it is, or with True at one
    that is found by the number of the process: see allow_inspection(). None leaves it to the environment variable
    HOTLOOP_INSPECT, which is 1 or a path with a slash, for all loops of the program; False closes this loop to it.
    """
    # Runner would notice too, but only after it has made a loop.
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("hotloop.run() cannot be called from a running event loop")
    if stall_report is not None and stall_after is None:
        raise ValueError("stall_report without stall_after: no stall would be reported")
    # The instruments stay until the loop is closed: what is cancelled at the end may block it, too.
    with contextlib.ExitStack() as instruments, asyncio.Runner(debug=debug, loop_factory=new_event_loop) as runner:
        if stall_after is not None:
            from hotloop.instruments import stalls

            report = stalls.log_stall if stall_report is None else stall_report
            instruments.enter_context(stalls.watch_stalls(runner.get_loop(), stall_after, report))
        if dump_tasks_on is not None:
            from hotloop.instruments import dumps

            instruments.enter_context(dumps.dump_tasks_on(runner.get_loop(), dump_tasks_on))
        # With None the loop itself opens one if HOTLOOP_INSPECT asks for it.
        if inspect is not None:
            from hotloop.instruments import inspection

            if inspect:
                path = None if inspect is True else inspect
                instruments.enter_context(inspection.allow_inspection(runner.get_loop(), path))
            else:
                inspection.leave_alone(runner.get_loop())
        return runner.run(main)
