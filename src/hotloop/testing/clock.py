"""The clock of a loop under test: it stands still while callbacks run, and then jumps to the next deadline.

When the loop has nothing to do, there are three reasons why the clock may not jump: it is held (something outside the
loop is at work, which takes real time), it is frozen (only advance() moves it), or there is no deadline.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from hotloop.testing.number_checks import check_seconds

if TYPE_CHECKING:
    from hotloop.testing.loop import EventLoop


class Timers:
    """The deadlines of all timers of call_at(), earliest first.

    They are kept separately because the compiled loop would sort all its timers to show them."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []
        self._next_number = count().__next__
        self._clean_at = 64  # entries

    def add(self, handle: Any) -> None:
        if len(self._heap) >= self._clean_at:
            self._heap = [entry for entry in self._heap if self._is_pending(entry[2])]
            heapify(self._heap)
            self._clean_at = max(64, 2 * len(self._heap))
        heappush(self._heap, (handle.when(), self._next_number(), handle))

    def first(self) -> float:
        """The earliest deadline of a timer that has neither run nor been cancelled; infinity if there is none."""
        heap = self._heap
        while heap and not self._is_pending(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else inf

    @staticmethod
    def _is_pending(handle: Any) -> bool:
        return handle._scheduled and not handle._cancelled


class Goal(NamedTuple):
    """A call of advance() whose time has not come. Goals are ordered by time, and those of the same time by age."""

    time: float
    number: int
    """Counts the calls."""
    future: "asyncio.Future[None]"
    ignores_holds: bool


class Clock:
    """The time of a loop of hotloop.testing, as `loop.clock`. All times are in seconds, by loop.time().

    Any thread may use hold() and time(). Everything else is for the loop's own thread, or for any thread while the loop
    does not run; otherwise it raises RuntimeError.
    """

    def __init__(self, loop: "EventLoop", start: float) -> None:
        self._loop = loop
        self._now = float(start)
        self._frozen = False
        self._goals: list[Goal] = []  # a heap
        self._next_number = count().__next__
        self.jumps = 0  # since the loop began to run
        self._holds = 0
        self._lock = threading.Lock()  # protects _holds: any thread may hold

    def time(self) -> float:
        """Return the current time. Callable from any thread."""
        return self._now

    # -- frozen --------------------------------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """True between freeze() and resume()."""
        return self._frozen

    def freeze(self) -> None:
        """Stop the clock: only advance() moves it from now on. Callbacks that are due already still run."""
        self._check_thread()
        self._frozen = True

    def resume(self) -> None:
        """Undo freeze(): the clock jumps to the next timer again."""
        self._check_thread()
        self._frozen = False

    def advance(self, seconds: float, *, ignore_holds: bool = False) -> asyncio.Future[None]:
        """Let `seconds` pass, frozen or not. The returned future is done when they have passed.

        Time goes from timer to timer, so each timer on the way sees the time at which it is due. At the end, everything
        has run that could run: after `await clock.advance(60)`, only callbacks that need I/O from elsewhere are left.
        The clock moves as the loop runs, not in this call, whether or not the future is awaited; cancelling the future
        revokes the request. With `ignore_holds`, executors, subprocesses and hold() do not stop the clock, so that a
        timeout for one of them can expire.

        Raises ValueError for a negative number of seconds, for NaN and for infinity; TypeError for what is no number.
        """
        self._check_thread()
        check_seconds("seconds", seconds)
        future = self._loop.create_future()
        heappush(self._goals, Goal(self._now + seconds, self._next_number(), future, ignore_holds))
        return future

    # -- held ----------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while something outside the loop is at work: an executor, a worker thread of anyio, a subprocess, or
        code inside a `with` of hold()."""
        return self._holds > 0 or self._loop._threads.at_work()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the clock inside this `with`, while real time passes. May be used in any thread.

        For work that the loop does not know of: the program's own threads, servers in other processes."""
        self._hold()
        try:
            yield
        finally:
            self._release()

    def _hold(self) -> None:
        with self._lock:
            self._holds += 1

    def _release(self, _: object = None) -> None:
        with self._lock:
            self._holds -= 1
        # The loop may be asleep until the clock is released. RuntimeError: it is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_nothing)

    # -- moving, by the loop -------------------------------------------------------------------------------------------

    def _is_stopped_by_holds(self) -> bool:
        goal = self._first_goal()
        return self.held and not (goal and goal.ignores_holds)

    def _next(self, deadline: float) -> float:
        """The time to go to, if the next timer is due at `deadline`; infinity: do not move."""
        goal = self._first_goal()
        limit = goal.time if goal else inf
        if self._frozen and (goal is None or deadline > limit):
            return limit
        return min(deadline, limit)

    def _move(self, deadline: float) -> None:
        """Go to the time that _next() returns. If no timer is due by then, finish the futures of advance() for this
        time; otherwise the timers run first."""
        to = self._next(deadline)
        if to > self._now:
            self._now = to
            self.jumps += 1
        while deadline > self._now and (goal := self._first_goal()) and goal.time <= self._now:
            heappop(self._goals)
            goal.future.set_result(None)

    def _first_goal(self) -> Goal | None:
        while self._goals and self._goals[0].future.done():
            heappop(self._goals)
        return self._goals[0] if self._goals else None

    def _check_thread(self) -> None:
        if getattr(self._loop, "_thread_id", None) not in (None, threading.get_ident()):
            message = "the loop runs in another thread: use loop.call_soon_threadsafe()"
            raise RuntimeError(message)

    def __repr__(self) -> str:
        states = "".join(f" {name}" for name in ("frozen", "held") if getattr(self, name))
        return f"<{type(self).__name__} time={self._now!r}{states}>"


def _nothing() -> None:
    """A callback that only wakes the loop."""
