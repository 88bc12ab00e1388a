"""Stalls: callbacks that block an event loop, reported while they do.

A loop has a number that changes whenever a callback or a task step begins or ends. The watchdog's thread reads it four
times per limit, so that watching does not slow a loop down and needs no debug mode. If the number has not changed for
the limit, there is a stall, and the thread records the stack of the loop's thread.

C code that keeps the GIL keeps the watchdog from looking, too. The watchdog looks when the GIL is released, as a rule
when the C function returns to the Python function that called it, which is therefore still on the stack. If the
watchdog has overslept by the limit or more, it assumes that the callback which runs now has run all the time.
"""

import asyncio
import dataclasses
import logging
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from hotloop._asyncio.mixin import Behind
from hotloop._switches import OFF
from hotloop.instruments.chains import describe_waiters, function_name
from hotloop.instruments.cpu_time import cpu_time_of
from hotloop.instruments.stacks import callback_stack, own_frame, stack_of_thread
from hotloop.instruments.watchdog import WATCHDOG

logger = logging.getLogger("hotloop.stalls")

_LOOKS_PER_LIMIT = 4
_IDLE = -1
"""A loop's progress while it waits or does not run."""
_WHOLE = "whole"
"""The word after the limit in HOTLOOP_STALL_AFTER with which stalls are logged at full length."""
_FRAMES_SHOWN = 5
_WAITERS_SHOWN = 3
"""The length of a report, unless the whole is asked for."""
_GONE = -2
"""Stands for the progress of a loop that was closed or collected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """A callback or task step that blocks an event loop, or has blocked it."""

    duration: float
    """How long, in seconds: so far, or in total. Accurate to a quarter of the limit."""
    ended: bool
    """Whether the stall is over. A stall is reported twice, first with False and then with True."""
    thread_id: int
    """threading.get_ident() of the thread that the loop runs in."""
    thread_name: str
    task_name: str | None
    """None if the loop is not blocked by a task."""
    coroutine: str | None
    """The qualified name of that task's coroutine function."""
    stack: tuple[traceback.FrameSummary, ...]
    """The Python stack of the loop's thread when the stall was found, outermost first. Empty if the stall ended at that
    moment."""
    awaited_by: tuple[str, ...]
    """The tasks that wait for the task, and those that wait for them: a line each, indented by two spaces per step."""
    cpu_time: float | None = None
    """For how many seconds of the duration the loop's thread was on a processor. The rest it waited: in a call that
    blocks, for the GIL, or for the system to let it run. None: not known; it is on Linux, for threads of the threading
    module."""
    whole: bool = False
    """Whether its text has the whole stack and all tasks that wait, and not only the last and first few of them."""

    @property
    def headline(self) -> str:
        """One line: where in the program, which loop, for how long, and in which task."""
        tense = "was" if self.ended else "has been"
        own = own_frame(callback_stack(self.stack))
        text = "" if own is None else f"{own.filename}:{own.lineno} in {own.name}(): "
        text += f"the event loop in thread {self.thread_name!r} {tense} blocked for {self.duration:.3g} s"
        if self.cpu_time is not None:
            text += f" (CPU time {self.cpu_time:.3f} s)"
        if self.task_name is not None:
            text += f", by task {self.task_name!r} ({self.coroutine}())"
        return text

    def __str__(self) -> str:
        """The text of the report: see `whole`; only the headline when the stall is over."""
        if self.ended:
            return self.headline
        lines = [self.headline]
        frames = self.stack if self.whole else callback_stack(self.stack)[-_FRAMES_SHOWN:]
        if frames:
            omitted = len(self.stack) - len(frames)
            lines.append("Stack (most recent call last):")
            lines += [f"  ... {omitted} outer frames"] if omitted else []
            lines.append("".join(traceback.format_list(frames)).rstrip())
        waiters = self.awaited_by if self.whole else self.awaited_by[:_WAITERS_SHOWN]
        if waiters:
            omitted = len(self.awaited_by) - len(waiters)
            lines += ["The task is awaited by:", *(f"  {line}" for line in waiters)]
            lines += [f"  ... {omitted} more"] if omitted else []
        return "\n".join(lines)


def log_stall(stall: Stall) -> None:
    """The default report of a stall: a warning of the logger "hotloop.stalls"."""
    logger.warning("%s", stall)


_watched: "weakref.WeakSet[asyncio.AbstractEventLoop]" = weakref.WeakSet()
"""The loops that have been watched: HOTLOOP_STALL_AFTER does not apply to them."""


class StallWatch:
    """Watches one loop: see watch_stalls(). A context manager that stops at its end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after: float, report: Callable[[Stall], object], whole: bool = False
    ) -> None:
        self.interval = after / _LOOKS_PER_LIMIT
        self._after = after
        self._loop = weakref.ref(loop)
        self._report = report
        self._whole = whole
        self._progress = _IDLE
        self._since = 0.0  # the time.monotonic() when this progress was first seen
        self._clock_since: tuple[int, float] | None = None  # at `_since`
        self._stall: Stall | None = None  # the present stall, as reported
        self._stopped: float | None = None
        self._clock = self._read_cpu_clock()  # at the last look; before the first one, which may be late, as of now

    def stop(self) -> None:
        """Stop watching. The end of a stall that is over by now is still reported; that of a stall which lasts on, as
        of the callback that calls stop() itself, is not. Idempotent; callable from any thread."""
        if self._stopped is None:
            self._stopped = monotonic()
            WATCHDOG.hurry(self)

    def __enter__(self) -> "StallWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def look(self, now: float, late: float) -> bool:
        """See watchdog.Watched."""
        # Before the progress is read: a look that began before stop() may not have seen the end of the stall.
        stopped = self._stopped
        progress = self._read_progress()
        clock = self._read_cpu_clock()
        clock_before, self._clock = self._clock, clock
        if progress != self._progress:
            self._progress = progress
            overslept = late >= self._after
            since, self._since = self._since, now - late if overslept else now
            clock_since, self._clock_since = self._clock_since, clock_before if overslept else clock
            if self._stall is not None:
                begun, self._stall = self._stall, None
                duration = (now if stopped is None else stopped) - since
                cpu_time = _cpu_time(clock_since, clock, duration)
                self._tell(dataclasses.replace(begun, duration=duration, ended=True, cpu_time=cpu_time))
        if progress == _GONE or stopped is not None:
            return False
        blocked = progress != _IDLE and now - self._since >= self._after
        if blocked and self._stall is None and self._stopped is None:
            duration = now - self._since
            self._stall = self._picture(duration, _cpu_time(self._clock_since, clock, duration))
            self._tell(self._stall)
        return True

    def _read_progress(self) -> int:
        loop: Any = self._loop()
        return _GONE if loop is None or loop.is_closed() else loop._progress()

    def _read_cpu_clock(self) -> tuple[int, float] | None:
        """The thread that the loop runs in, or was blocked in, and its processor time; None: not known."""
        thread_id: int | None = getattr(self._loop(), "_thread_id", None)
        if thread_id is None:
            if self._stall is None:
                return None
            thread_id = self._stall.thread_id
        seconds = cpu_time_of(thread_id)
        return None if seconds is None else (thread_id, seconds)

    def _picture(self, duration: float, cpu_time: float | None) -> Stall:
        """The stall as far as it can be seen from this thread."""
        loop: Any = self._loop()
        thread_id: int = getattr(loop, "_thread_id", None) or 0
        task = None if loop is None else asyncio.current_task(loop)
        frames = stack_of_thread(thread_id)
        waiting = [] if task is None else describe_waiters(task)
        if self._read_progress() != self._progress:
            # The stall has ended meanwhile: what was read belongs to another callback.
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
            cpu_time=cpu_time,
            whole=self._whole,
        )

    def _tell(self, stall: Stall) -> None:
        try:
            self._report(stall)
        except BaseException:
            # Including SystemExit, which would end this thread and thereby stop watching all other loops.
            logger.exception("the report of a stall has failed: %s", stall.headline)


def _cpu_time(before: tuple[int, float] | None, now: tuple[int, float] | None, duration: float) -> float | None:
    """The processor time between two readings; None unless both are of the same thread.

    The first may have been taken before the duration began, and the second after its end."""
    if before is None or now is None or before[0] != now[0] or now[1] < before[1]:
        return None  # the number of a thread that has ended may be another's by now
    return min(now[1] - before[1], duration)


def _thread_name(thread_id: int) -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return names.get(thread_id) or f"thread {thread_id}"


def check_limit(after: float) -> None:
    """Raise TypeError or ValueError unless `after` is a positive, finite number of seconds."""
    if not isinstance(after, int | float) or isinstance(after, bool):
        raise TypeError(f"a limit for stalls must be a number of seconds, not {after!r}")
    if not 0 < after <= sys.float_info.max:
        raise ValueError(f"a limit for stalls must be positive and finite, not {after!r}")


def watch_stalls(
    loop: asyncio.AbstractEventLoop,
    after: float,
    report: Callable[[Stall], object] = log_stall,
    *,
    whole: bool = False,
) -> StallWatch:
    """Report every callback that blocks `loop` for more than `after` seconds, while it does and when it has ended.

    `report` is called with a Stall in the watchdog's thread, which watches all loops of the process, so it should not
    take long. Its exceptions are logged. The default logs stalls as warnings of the logger "hotloop.stalls". A stall's
    text has the last frames of its stack, and with `whole` all of them.

    Watching lasts until the loop is closed or collected, or until stop() of the returned context manager. Any thread
    may watch a loop, also before it runs, and more than once. A forked child is not watched. Raises TypeError for a
    loop that is not hotloop's, a limit that is no number or a report that is not callable, ValueError for a limit that
    is not positive and finite, and RuntimeError if the loop is closed or no thread can be started; it is a
    NotImplementedError on Windows, where hotloop's loop is asyncio's own.
    """
    check_limit(after)
    if not hasattr(loop, "_progress"):
        raise TypeError(f"only hotloop's event loops can be watched, not {loop!r}")
    loop._progress()  # raises the NotImplementedError
    if not callable(report):
        raise TypeError(f"a report of stalls must be callable, not {report!r}")
    if loop.is_closed():
        raise RuntimeError("Event loop is closed")
    watch = StallWatch(loop, after, report, whole)
    WATCHDOG.add(watch)
    _watched.add(loop)
    return watch


class WatchedLoop(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop if HOTLOOP_STALL_AFTER is set: stalls are logged from the first run on."""

    def run_forever(self) -> None:
        """Run until stop() is called."""
        if self not in _watched:
            _watched.add(self)
            _watch_as_asked(self)
        super().run_forever()


def _watch_as_asked(loop: Any) -> None:
    """Watch the loop as HOTLOOP_STALL_AFTER says. Errors are logged, because the program can run without it."""
    asked = os.environ.get("HOTLOOP_STALL_AFTER", "")
    if asked.lower() not in OFF:
        try:
            seconds, comma, word = asked.partition(",")
            if comma and word.strip().lower() != _WHOLE:
                raise ValueError(f"{word!r} is not {_WHOLE!r}")
            watch_stalls(loop, float(seconds), whole=bool(comma))
        except (RuntimeError, ValueError) as error:
            logger.warning("HOTLOOP_STALL_AFTER=%s: stalls are not reported: %s", asked, error)
