"""Timers: a binary heap by deadline, and among equal deadlines by age.

Programs read `loop._scheduled` and change it with heapq. So the heap is a real list of handles, not of tuples around
them, and a handle's position is not recorded. A timer that is cancelled stays, without callback and arguments, until
it comes to the top or the cancelled ones outnumber the live ones, because finding one would cost more than sorting them
out later. Only the loop takes timers out: another thread may cancel one while heapq compares two of them, which fails
if the list becomes shorter.
"""

from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import events
from hotloop._pure.scheduler.handles import Handle, new_handle
from hotloop._pure.scheduler.ready_queue import ReadyQueue

if TYPE_CHECKING:
    from hotloop._pure.loop.loop_core import LoopCore

_next_order = count().__next__
_deadline = attrgetter("_when")
_deadline_and_age = attrgetter("_when", "_order")


class TimerHandle(Handle, events.TimerHandle):  # type: ignore[misc]
    """A callback with a deadline, as call_later() and call_at() return it. See asyncio.TimerHandle."""

    __slots__ = ("_order",)  # equal deadlines run in the order of their creation

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "LoopCore",
        context: Context | None = None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        if self._source_traceback:
            del self._source_traceback[-1]
        self._order = _next_order()

    def __lt__(self, other: Any) -> Any:
        # heapq calls this over and over, with timers: so the types are not checked first.
        try:
            return self._when < other._when
        except AttributeError:
            return NotImplemented

    def cancel(self: Any) -> None:
        """Make sure that the callback will not be called. Idempotent."""
        if not self._cancelled:
            self._cancelled = True
            self._loop._timer_handle_cancelled(self)
            if self._loop.get_debug():
                # While the callback and its arguments are still there.
                self._repr = repr(self)
            self._callback = None
            self._args = None


class TimerQueue:
    """The pending timers of one loop."""

    __slots__ = ("_cancelled", "heap")

    def __init__(self) -> None:
        self.heap: list[Any] = []
        self._cancelled = 0  # cancelled handles in the heap, as far as cancelled() was called for them

    def __len__(self) -> int:
        return len(self.heap)

    def push(self, handle: Any) -> None:
        """Add a handle. If its deadline cannot be ordered, raise TypeError and leave the heap as it is."""
        if not handle._when <= inf:
            # A NaN is due at once, as in asyncio, but does not corrupt the order of the others as it does there.
            handle._when = -inf
        heappush(self.heap, handle)
        handle._scheduled = True

    def cancelled(self, handle: Any) -> None:
        """Note that a handle was cancelled."""
        if handle._scheduled:
            self._cancelled += 1

    def expire(self, now: float, ready: ReadyQueue) -> float | None:
        """Queue every handle whose deadline has come, in the order of deadlines, equal ones by age.

        Returns the earliest deadline; None if no timer was due."""
        heap = self.heap
        if self._cancelled * 2 > len(heap):
            live = [handle for handle in heap if not handle._cancelled]
            live.sort(key=_deadline)  # a sorted list is a heap; the key avoids calling __lt__()
            heap[:] = live  # in place: the list is loop._scheduled
            self._cancelled = 0
        due: list[Any] = []
        try:
            # Never early, by the loop's clock.
            while heap and heap[0]._when <= now:
                due.append(heap[0])  # while it is still in the heap: there may be no memory
                due[-1] = handle = self._pop()
                if handle._cancelled:
                    due.pop()
                    self._forget_cancelled()
            if len(due) > 1:
                # An asyncio.TimerHandle that a program has put here has no second key.
                with suppress(AttributeError):
                    due.sort(key=_deadline_and_age)
            ready.extend(due)
        except BaseException:
            self._put_back(due, ready)
            raise
        return due[0]._when if due else None

    def _put_back(self, due: list[Any], ready: ReadyQueue) -> None:
        """After an exception, such as a signal's KeyboardInterrupt: no timer is lost, and none is there twice."""
        known = {*map(id, self.heap), *map(id, ready)}
        for handle in due:
            if id(handle) not in known:
                self.push(handle)

    def next_deadline(self) -> float | None:
        """The earliest deadline; None if nothing is pending."""
        heap = self.heap
        while heap:
            handle = heap[0]
            if not handle._cancelled:
                return handle._when  # type: ignore[no-any-return]
            self._pop()
            self._forget_cancelled()
        return None

    def _pop(self) -> Any:
        heap = self.heap
        first = heap[0]
        try:
            first = heappop(heap)
        except RuntimeError:
            # Another thread has set a timer while heapq compared two. It should have used call_soon_threadsafe(), but
            # it must not end the loop. `first` is no longer in the heap; the order of the others is not certain.
            heap.sort(key=_deadline)
        first._scheduled = False
        return first

    def _forget_cancelled(self) -> None:
        if self._cancelled:
            self._cancelled -= 1


def new_timer(
    when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: "LoopCore", context: Context | None
) -> TimerHandle:
    """The TimerHandle that call_at() makes outside debug mode; see new_handle()."""
    handle = new_handle(callback, args, loop, context, TimerHandle)
    handle._when = when
    handle._scheduled = False
    handle._order = _next_order()
    return handle  # type: ignore[no-any-return]
