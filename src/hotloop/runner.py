"""hotloop.run(): asyncio.run() on hotloop's event loop, from Python 3.11 on and without policies."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hotloop._asyncio import compiled_layer
from hotloop._asyncio.name_resolver import check_size
from hotloop.loop import class_with_tasks, make_class_with

if TYPE_CHECKING:
    from hotloop.instruments.stalls import Stall

_T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    stall_after: float | None = None,
    stall_report: "Callable[[Stall], object] | None" = None,
    stall_whole: bool = False,
    dump_tasks_on: int | None = None,
    inspect: "bool | str | os.PathLike[str] | None" = None,
    compiled_asyncio: bool | None = None,
    tasks: Literal["asyncio"] | None = None,
    name_threads: int | None = None,
    keep_tasks: bool = False,
) -> _T:
    """Run the coroutine `main` on a new event loop and return its result, as asyncio.run() does.

    At the end, remaining tasks are cancelled, asynchronous generators and the default executor are shut down and the
    loop is closed. `debug` sets the loop's debug mode; None leaves it to PYTHONASYNCIODEBUG and Python's development
    mode. Raises RuntimeError if an event loop is already running in this thread, and ValueError for keywords that
    ask for nothing or are out of range.

    If `stall_after` (in seconds) is given, every callback that blocks the loop for longer is reported, by calling
    `stall_report` or in the log: see watch_stalls(). `stall_whole` is its `whole`. `dump_tasks_on` is a signal at which
    all tasks are written to the standard error: see dump_tasks_on(). `inspect` opens a socket for
    `python -m hotloop top`, `ps` and `pstree`, at the given path, or if it is True at one that contains the process id:
    see allow_inspection(). If it is None, the environment variable HOTLOOP_INSPECT decides for all loops of the
    program (1, or a path with a slash); False excludes this loop.

    If `compiled_asyncio` is true, hotloop's compiled queues, locks, timeouts, task groups and streams are put into
    asyncio's modules before the loop runs, and stay there until the process ends. Names that were imported from asyncio
    before remain asyncio's own: hotloop.compiled_asyncio() lists them. Where hotloop has no compiled objects, nothing
    changes. None leaves the decision to the environment variable HOTLOOP_COMPILED_ASYNCIO (1).

    With `tasks="asyncio"` the loop's futures and tasks are asyncio's own; `name_threads` is the number of threads in
    which the loop resolves names: see new_event_loop().

    If `keep_tasks` is true, the loop holds every task of create_task() until it is done. Otherwise, as in asyncio, the
    garbage collector may end a waiting task that nothing else holds. Tasks that are pending when `main` has ended are
    named in a warning of the logger "hotloop.tasks", before they are cancelled.
    """
    # Runner would raise too, but only after it has made a loop.
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("hotloop.run() cannot be called from a running event loop")
    if stall_after is None and (stall_report is not None or stall_whole):
        raise ValueError("stall_report or stall_whole without stall_after: no stall would be reported")
    check_size(name_threads)
    compiled_layer.install_if_asked(compiled_asyncio)
    event_loop: Any = class_with_tasks(tasks)
    if keep_tasks:
        from hotloop.instruments.kept_tasks import KeptTasks

        event_loop = make_class_with(KeptTasks, event_loop)
    # The instruments stay until the loop is closed: tasks that are cancelled at the end may block it, too.
    with contextlib.ExitStack() as instruments, asyncio.Runner(debug=debug, loop_factory=event_loop) as runner:
        if name_threads is not None:
            runner.get_loop()._name_threads.size = name_threads  # type: ignore[attr-defined]
        if stall_after is not None:
            from hotloop.instruments import stalls

            report = stalls.log_stall if stall_report is None else stall_report
            instruments.enter_context(stalls.watch_stalls(runner.get_loop(), stall_after, report, whole=stall_whole))
        if dump_tasks_on is not None:
            from hotloop.instruments import dumps

            instruments.enter_context(dumps.dump_tasks_on(runner.get_loop(), dump_tasks_on))
        # If it is None, the loop itself opens a socket when HOTLOOP_INSPECT asks for one.
        if inspect is not None:
            from hotloop.instruments import inspection

            if inspect:
                path = None if inspect is True else inspect
                instruments.enter_context(inspection.allow_inspection(runner.get_loop(), path))
            else:
                inspection.leave_alone(runner.get_loop())
        try:
            return runner.run(main)
        finally:
            if keep_tasks:
                event_loop.report_kept_tasks(runner.get_loop())
