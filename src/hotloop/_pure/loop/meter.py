"""Meter: what a loop counts and times of itself; see loop.metrics().

The clock is read at the end of each batch, and where a poll may wait. What there is to know of the batches between two
polls, a slice, is worked out once for all of them. Each callback is timed only in a slice after one whose callbacks
were long on average, and in the slices after the one that had the longest, if it is not known which that was.

Times and bytes are kept from the first loop.metrics() on: in Python that costs too much to be done for those who never
ask. Callbacks, steps, iterations and polls count from the beginning, and the longest callback is kept from there.

An object of its own, because the interpreter is quick at the attributes in an instance's dict only as long as there are
fewer than 30 of them, which asyncio's loops nearly have.
"""

from collections.abc import Callable
from itertools import repeat
from math import inf
from operator import length_hint
from typing import Any
from weakref import WeakSet

from hotloop._asyncio.callbacks import describe

TIME_SLICE = 0.0001
"""For how long, in seconds, queued callbacks may keep the loop from polling."""

PATIENCE = 64
"""After how many polls in vain, in a row, a loop begins to skip polls."""

FIRST_PAUSE = TIME_SLICE / 128
"""For how long at first, in seconds; for twice as long after each further one."""

LONG_CALLBACK = 5e-6
"""Callbacks that take this long on average, in seconds, are timed one by one."""

CLOSE_LOOKS = 1000
"""In how many slices each is timed after a batch that took longer than all before."""

_FIRST_BUCKET = 10
_BUCKETS = 26


class Histogram:
    """Samples of a duration; see hotloop.metrics.Delays."""

    __slots__ = ("buckets", "count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # in seconds, as is the next one
        self.maximum = 0.0
        self.buckets = [0] * _BUCKETS

    def add(self, count: int, total: float) -> None:
        """`count` samples that are `total` seconds together: all in the bucket of their mean."""
        each = total / count
        self.count += count
        self.total += total
        if each > self.maximum:
            self.maximum = each
        nanoseconds = min(int(each * 1e9), 1 << 60)
        bucket = (nanoseconds - 1).bit_length() - _FIRST_BUCKET if nanoseconds > 1 else 0
        self.buckets[min(max(bucket, 0), _BUCKETS - 1)] += count

    def numbers(self) -> tuple[int, int, int, tuple[int, ...]]:
        """As hotloop.metrics has them."""
        return (self.count, int(self.total * 1e9), int(self.maximum * 1e9), tuple(self.buckets))


class Meter:
    """The measurements of one loop. All times are in seconds, by LoopCore._clock()."""

    __slots__ = (
        *("batch", "items", "cancelled", "iterations", "polls", "steps"),
        *("next_poll", "slice", "pause", "in_vain", "due_by"),
        *("mark", "slice_began", "slice_items", "slice_iterations", "before_last", "running", "waiting"),
        *("busy", "idle", "delay", "lateness", "longest", "longest_described"),
        *("measuring", "observing", "close_looks", "slow_after", "slow_hook"),
        *("bytes_received", "receives", "bytes_sent", "sends", "pipes"),
    )

    def __init__(self) -> None:
        self.next_poll = 0.0
        self.slice = TIME_SLICE  # how long after a poll the next one is, at most
        self.pause = 0.0  # how long it is
        self.in_vain = 0  # polls in a row, up to PATIENCE
        self.due_by = inf  # by the loop's time(): a timer that is due later can wait for the next poll
        # What is left of the batch that is run; None while the loop polls, and while it does not run. So other threads
        # see how far it is, and counting costs nothing for each item.
        self.batch: repeat[None] | None = None
        self.items = 0  # callbacks and task steps that were begun, and what is left of the batch
        self.cancelled = 0  # of these, handles that did not run, because they were cancelled
        self.iterations = self.polls = self.steps = 0
        self.mark = self.slice_began = 0.0
        self.slice_items = self.slice_iterations = 0  # when it began
        self.before_last: float | None = None  # how long the slice was when its last, long batch began
        self.running = self.waiting = False
        self.busy = self.idle = 0.0
        self.delay, self.lateness = Histogram(), Histogram()
        self.longest = 0.0
        self.longest_described: tuple[Any, ...] | None = None
        self.measuring = False  # somebody has asked for metrics
        self.observing = False  # each callback is timed
        self.close_looks = 0  # slices to come in which it is in any case
        self.slow_after = 0.0
        self.slow_hook: Callable[..., object] | None = None
        self.bytes_received = self.receives = self.bytes_sent = self.sends = 0
        self.pipes: WeakSet[Any] = WeakSet()  # their transports

    # -- polls ---------------------------------------------------------------------------------------------------------

    def pause_after_poll(self, in_vain: bool) -> float:
        """For how long queued callbacks may keep the loop from the next one."""
        if not in_vain:
            self.in_vain = 0
            self.pause = 0.0
        elif self.in_vain < PATIENCE:
            self.in_vain += 1
        else:
            self.pause = min(2 * self.pause or FIRST_PAUSE, self.slice)
        return self.pause

    # -- batches -------------------------------------------------------------------------------------------------------

    def progress(self) -> int:
        """See LoopCore._progress()."""
        batch = self.batch
        return -1 if batch is None else self.items - length_hint(batch)

    def enter(self, outer: "repeat[None]") -> None:
        """A batch begins inside of a callback of the `outer` one."""
        self.items -= length_hint(outer)

    def leave(self, outer: "repeat[None] | None", batch: "repeat[None]") -> None:
        """A batch is over, before its end or inside of a callback of an `outer` one."""
        self.items -= length_hint(batch)
        if outer is not None:
            self.items += length_hint(outer)

    def long_batch(self, loop: Any, began: float, handle: Any, items: int) -> None:
        """A batch has taken longer than the time slice; `handle` was its last."""
        self.before_last = began - self.slice_began
        if (items == 1 or not self.observing) and self.slow_hook is None and not loop._debug:
            self.took_long(loop, handle if items == 1 else None, self.mark - began, items)

    def took_long(self, loop: Any, handle: Any, seconds: float, of: int = 1) -> None:
        """A handle has taken so many seconds; or one `of` several, and it is not known which (None)."""
        if seconds > self.longest:
            self.longest = seconds
            if handle is None:
                self.close_looks = CLOSE_LOOKS
            self.longest_described = (int(seconds * 1e9), of, *describe(handle))
        if self.slow_hook is not None and of == 1 and seconds >= self.slow_after:
            self.slow_hook(loop, seconds, handle)
            # What the hook has taken is not the next one's.
            self.mark = loop._clock()

    # -- slices --------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The loop begins to run; time that it has not run does not count."""
        self.mark = now
        self.running = True
        if self.measuring:
            self.begin_slice()

    def begin_slice(self) -> None:
        """What is to be known of the callbacks that come is not known yet."""
        self.slice_began = self.mark
        self.slice_items = self.items
        self.slice_iterations = self.iterations
        self.before_last = None
        self.observing = True

    def end(self, now: float) -> None:
        """The loop runs no more."""
        self.mark = now
        self.waiting = False
        if self.measuring:
            self.end_slice()
        self.running = False

    def measure(self, now: float) -> None:
        """From here on times are kept."""
        self.measuring = True
        if self.running:
            self.mark = now
            self.begin_slice()

    def end_slice(self) -> None:
        """All that ran since the last poll has ended, at the last reading of the clock."""
        passed = self.mark - self.slice_began
        batches = self.iterations - self.slice_iterations
        if batches > 0:
            if self.before_last is not None and batches > 1 and 0 <= self.before_last <= passed:
                self.delay.add(batches - 1, self.before_last)
                self.delay.add(1, passed - self.before_last)
            else:
                self.delay.add(batches, passed)
            self.observing = passed > (self.items - self.slice_items) * LONG_CALLBACK
            if self.close_looks:
                self.close_looks -= 1
                self.observing = True
        self.busy += passed
        self.before_last = None
        self.slice_began = self.mark
        self.slice_items = self.items
        self.slice_iterations = self.iterations

    def polled(self, now: float) -> None:
        """A poll has ended."""
        passed = now - self.mark
        if self.waiting:
            self.idle += passed
        else:
            self.busy += passed
        self.mark = self.slice_began = now

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def received(self, result: Any) -> None:
        """A socket's method has returned what it says that it has received. But the socket may be anybody's object."""
        least = 1  # the end of a stream is none, a datagram without bytes is one
        if type(result) is tuple and result:
            result = result[0]
            least = 0
        if type(result) is bytes:
            result = len(result)
        if type(result) is int and result >= least:
            self.bytes_received += result
            self.receives += 1

    def sent(self, result: Any) -> None:
        """The same for one that sends."""
        if type(result) is int and result >= 0:
            self.bytes_sent += result
            self.sends += 1

    # -- asking --------------------------------------------------------------------------------------------------------

    def numbers(self, now: float) -> dict[str, Any]:
        """The fields of hotloop.Metrics that are kept here."""
        busy, idle = self.busy, self.idle
        if self.waiting:
            idle += now - self.mark
        elif self.running:
            busy += now - self.slice_began
        left = 0 if self.batch is None else length_hint(self.batch)
        return {
            "iterations": self.iterations,
            "polls": self.polls,
            "callbacks": self.items - left - self.cancelled,
            "task_steps": self.steps,
            "busy_ns": int(busy * 1e9),
            "idle_ns": int(idle * 1e9),
            "scheduling_delay": self.delay.numbers(),
            "timer_lateness": self.lateness.numbers(),
            "longest_callback": self.longest_described,
            "bytes_received": self.bytes_received,
            "receives": self.receives,
            "bytes_sent": self.bytes_sent,
            "sends": self.sends,
        }
