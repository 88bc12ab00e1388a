"""The clock of a loop under test: it stands still while anything runs, and jumps to what is due next.

It has three reasons to stop, all of them looked at when the loop has nothing to do: it is held (something outside the
loop is at work, which takes real time), it is frozen (only advance() moves it), or nothing is due ever.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.testing.loop import EventLoop


def finite(name: str, value: float) -> float:
    """The number of seconds given as `name`. TypeError if it is no number, ValueError for NaN and infinity."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not isfinite(value):
        raise ValueError(f"{name} must be finite, not {value!r}")
    return float(value)


class Timers:
    """The deadlines of what was given to call_at(), earliest first.

    Beside the loop's own timers, which it does not show without sorting them all."""

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


class Clock:
    """The time of a loop of hotloop.testing, as `loop.clock`. All times are in seconds, by loop.time().

    Everything but hold() is for the loop's own thread, and for any thread while the loop does not run; elsewhere it
    raises RuntimeError.
    """

    def __init__(self, loop: "EventLoop", start: float) -> None:
        self._loop = loop
        self._now = float(start)
        self._frozen = False
        # What advance() was asked for, a heap: when, its number, its future, whether holds count.
        self._goals: list[tuple[float, int, asyncio.Future[None], bool]] = []
        self._next_number = count().__next__
        self.jumps = 0  # since the loop began to run
        self._holds = 0
        self._lock = threading.Lock()  # over _holds: any thread may hold

    def time(self) -> float:
        """The time now. Callable from any thread."""
        return self._now

    # -- frozen --------------------------------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """True between freeze() and resume()."""
        return self._frozen

    def freeze(self) -> None:
        """From now on only advance() moves the clock. What is due already still runs."""
        self._check_thread()
        self._frozen = True

    def resume(self) -> None:
        """End what freeze() began: the clock jumps to the next timer again."""
        self._check_thread()
        self._frozen = False

    def advance(self, seconds: float, *, ignore_holds: bool = False) -> asyncio.Future[None]:
        """Let `seconds` pass, frozen or not. The future that is returned is done when they have.

        Time goes from timer to timer, so what is due on the way sees the time it was due at. At the end everything has
        run that could run: `await clock.advance(60)` leaves nothing half done but what waits for I/O from elsewhere.
        The clock moves as the loop runs, not in this call; whether the future is awaited makes no difference to it, and
        cancelling it takes the wish back. With `ignore_holds`, executors, subprocesses and hold() do not stop the
        clock: that is how a timeout can fire that waits for one of these.

        Raises ValueError for a negative number of seconds, for NaN and for infinity.
        """
        self._check_thread()
        if finite("seconds", seconds) < 0:
            raise ValueError(f"seconds must not be negative: {seconds!r}")
        future = self._loop.create_future()
        heappush(self._goals, (self._now + seconds, self._next_number(), future, ignore_holds))
        return future

    # -- held ----------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while something outside the loop is at work: an executor, a worker thread of anyio, a subprocess, or
        what has called hold()."""
        return self._holds > 0 or self._loop._threads.at_work()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The clock stands still inside this `with`, while real time passes. May be used in any thread.

        For work that the loop cannot know of: threads of one's own, servers in other processes."""
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
        # The loop may be asleep until this happens. Closed, it is not.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_nothing)

    # -- moving, by the loop -------------------------------------------------------------------------------------------

    def _is_stopped_by_holds(self) -> bool:
        goal = self._first_goal()
        return self.held and not (goal and goal[3])

    def _next(self, deadline: float) -> float:
        """To what time to go, if the next timer is due at `deadline`; infinity: nowhere."""
        goal = self._first_goal()
        limit = goal[0] if goal else inf
        if self._frozen and (goal is None or deadline > limit):
            return limit
        return min(deadline, limit)

    def _move(self, deadline: float) -> None:
        """Go to where _next() says, and tell who has asked for this time if no timer is due then: first everything is
        to run that can."""
        to = self._next(deadline)
        if to > self._now:
            self._now = to
            self.jumps += 1
        while deadline > self._now and (goal := self._first_goal()) and goal[0] <= self._now:
            heappop(self._goals)
            goal[2].set_result(None)

    def _first_goal(self) -> tuple[float, int, asyncio.Future[None], bool] | None:
        while self._goals and self._goals[0][2].done():
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
    """For a loop that is to wake up."""
