"""Stalls: callbacks that block an event loop, reported while they do.

A loop has a number that changes whenever a callback or a step of a task begins or ends. The watchdog's thread looks at
it four times per limit; so a loop is none the slower for being watched, and debug mode is not needed. Where the number
has stood still for the limit there is a stall, and the thread pictures the stack of the loop's thread.

C code that keeps the GIL keeps the watchdog from looking, too. It looks when the GIL is given up, as a rule when the C
function returns to the Python function that has called it, which is therefore still there to be seen. Having slept for
longer than it meant to, by the limit or more, it takes what runs then for what has run all the time.
"""

import asyncio
import dataclasses
import logging
import math
import threading
import traceback
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from hotloop.instruments.chains import describe_waiters, function_name, stack_of_thread
from hotloop.instruments.watchdog import WATCHDOG

logger = logging.getLogger("hotloop.stalls")

_LOOKS_PER_LIMIT = 4
_IDLE = -1
"""A loop's progress while it waits, or does not run."""
_GONE = -2
"""In place of the progress of a loop that was closed or collected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """One callback, or step of a task, that blocks an event loop, or has done so."""

    duration: float
    """For how long, in seconds: so far or altogether. True to within a quarter of the limit."""
    ended: bool
    """Whether it is over. A stall is reported twice, first with False and then with True."""
    thread_id: int
    """threading.get_ident() of the thread that the loop runs in."""
    thread_name: str
    task_name: str | None
    """None where it is not a task that blocks the loop."""
    coroutine: str | None
    """The qualified name of that task's coroutine function."""
    stack: tuple[traceback.FrameSummary, ...]
    """The Python stack of the loop's thread when the stall was found, outermost first. Empty if the stall ended just
    then."""
    awaited_by: tuple[str, ...]
    """Who waits for the task, and who waits for those: a line for each, indented by two spaces a step."""

    @property
    def headline(self) -> str:
        """One line: which loop, for how long, and in which task."""
        tense = "was" if self.ended else "has been"
        text = f"the event loop in thread {self.thread_name!r} {tense} blocked for {self.duration:.3g} s"
        if self.task_name is not None:
            text += f", by task {self.task_name!r} ({self.coroutine}())"
        return text

    def __str__(self) -> str:
        """The text of the report: all there is to know, or one line when the stall is over."""
        if self.ended:
            return self.headline
        lines = [self.headline]
        if self.stack:
            lines += ["Stack (most recent call last):", "".join(traceback.format_list(self.stack)).rstrip()]
        if self.awaited_by:
            lines += ["The task is awaited by:", *(f"  {line}" for line in self.awaited_by)]
        return "\n".join(lines)


def log_stall(stall: Stall) -> None:
    """What reports stalls unless a program has its own: a warning to the logger "hotloop.stalls"."""
    logger.warning("%s", stall)


class StallWatch:
    """What watches one loop: see watch_stalls(). A context manager that stops at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after: float, report: Callable[[Stall], object]) -> None:
        self.interval = after / _LOOKS_PER_LIMIT
        self._after = after
        self._loop = weakref.ref(loop)
        self._report = report
        self._progress = _IDLE
        self._since = 0.0  # when the loop was first seen to have got that far; time.monotonic()
        self._stall: Stall | None = None  # the one that is under way, as reported
        self._stopped: float | None = None

    def stop(self) -> None:
        """Stop watching. A stall that is over is still reported to be. Idempotent; from any thread."""
        if self._stopped is None:
            self._stopped = monotonic()
            WATCHDOG.hurry(self)

    def __enter__(self) -> "StallWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def look(self, now: float, late: float) -> bool:
        """For the watchdog."""
        progress = self._read_progress()
        if progress != self._progress:
            self._progress = progress
            since, self._since = self._since, now - late if late >= self._after else now
            if self._stall is not None:
                begun, self._stall = self._stall, None
                duration = (now if self._stopped is None else self._stopped) - since
                self._tell(dataclasses.replace(begun, duration=duration, ended=True))
        if progress == _GONE or self._stopped is not None:
            return False
        if progress != _IDLE and self._stall is None and now - self._since >= self._after:
            self._stall = self._picture(now - self._since)
            self._tell(self._stall)
        return True

    def _read_progress(self) -> int:
        loop: Any = self._loop()
        return _GONE if loop is None or loop.is_closed() else loop._progress()

    def _picture(self, duration: float) -> Stall:
        """What can be seen of a stall from another thread."""
        loop: Any = self._loop()
        thread_id: int = getattr(loop, "_thread_id", None) or 0
        task = None if loop is None else asyncio.current_task(loop)
        frames = stack_of_thread(thread_id)
        waiting = [] if task is None else describe_waiters(task)
        if self._read_progress() != self._progress:
            # Over by now: this is a picture of something else.
            task, frames, waiting = None, [], []
        return Stall(
            duration=duration,
            ended=False,
            thread_id=thread_id,
            thread_name=_thread_name(thread_id),
            task_name=None if task is None else task.get_name(),
            coroutine=None if task is None else function_name(task.get_coro()),
            stack=tuple(traceback.StackSummary.extract(iter(frames))),
            awaited_by=tuple(waiting),
        )

    def _tell(self, stall: Stall) -> None:
        try:
            self._report(stall)
        except BaseException:
            # SystemExit as well: it would end this thread, and with it the watch over all other loops.
            logger.exception("the report of a stall has failed: %s", stall.headline)


def _thread_name(thread_id: int) -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return names.get(thread_id) or f"thread {thread_id}"


def check_limit(after: float) -> None:
    """Raise TypeError or ValueError unless `after` is a number of seconds that a stall may be required to last."""
    if not isinstance(after, int | float) or isinstance(after, bool):
        raise TypeError(f"a limit for stalls must be a number of seconds, not {after!r}")
    if not 0 < after < math.inf:
        raise ValueError(f"a limit for stalls must be positive and finite, not {after!r}")


def watch_stalls(
    loop: asyncio.AbstractEventLoop,
    after: float,
    report: Callable[[Stall], object] = log_stall,
) -> StallWatch:
    """Report every callback that blocks `loop` for more than `after` seconds, while it does and when it has ended.

    `report` is called with a Stall in the watchdog's thread, which watches all loops of the process; so it should not
    take long. An exception of its is logged. Without one, stalls are warnings of the logger "hotloop.stalls".

    It lasts until the loop is closed or collected, or until stop() of what is returned, which is a context manager
    as well; a loop may be watched before it runs, from any thread, and more than once. A forked child is not watched.
    Raises TypeError for a loop that is not hotloop's, ValueError for a limit that is none and RuntimeError for a loop
    that is closed, or if no thread can be started.
    """
    check_limit(after)
    if not hasattr(loop, "_progress"):
        raise TypeError(f"only hotloop's event loops can be watched, not {loop!r}")
    if not callable(report):
        raise TypeError(f"a report of stalls must be callable, not {report!r}")
    if loop.is_closed():
        raise RuntimeError("Event loop is closed")
    watch = StallWatch(loop, after, report)
    WATCHDOG.add(watch)
    return watch
