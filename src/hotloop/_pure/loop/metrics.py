"""Measurements: what a loop counts and times; see loop.metrics().

A slice is all batches between two polls. The clock is read at the end of each batch and when a poll may wait, and the
numbers of a slice are worked out once, at its end. Each callback is timed only in the first slice of a run, in a slice
that follows one whose callbacks were long on average, and after a batch that took longest without it being known which
callback was to blame.

Times and bytes are measured from the first loop.metrics() on: in Python this costs too much for programs that never
ask. Callbacks, steps, iterations and polls, and the longest callback, count from the beginning.

It is an object of its own because the interpreter's fast access to the attributes of an instance dict ends at 30 of
them, and asyncio's loops have nearly as many.
"""

import time
from _thread import _count as threads_beside_the_first
from collections.abc import Callable
from itertools import repeat
from math import inf
from operator import length_hint
from typing import Any, ClassVar
from weakref import WeakSet

from hotloop._asyncio.describe_callbacks import describe
from hotloop._pure.system.clock import monotonic

TIME_SLICE = 0.0001
"""How long, in seconds, queued callbacks may delay the next poll."""

PATIENCE = 64
"""The number of polls in a row that find nothing, after which a loop begins to skip polls."""

FIRST_PAUSE = TIME_SLICE / 128
"""How long, in seconds, it skips polls at first; each further poll that finds nothing doubles it."""

LONG_CALLBACK = 5e-6
"""Callbacks that take this long on average, in seconds, are timed one by one."""

SLICES_TO_TIME = 1000
"""The number of slices in which each callback is timed after a batch that took longer than all before."""

CPU_READING_AGE = 0.01
"""How old the reading of the CPU clock may be that counts as a callback's beginning, as a fraction of the threshold of
the slow-callback hook."""

cpu_clock: Callable[[], float | None] = getattr(time, "thread_time", lambda: None)
"""How long this thread has been on a processor, in seconds; None where the system does not tell. A system call."""

# The first bucket of a Histogram ends at 2**10 ns, each further one at twice that: hotloop.metrics.BUCKET_BOUNDS_NS.
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
        """Add `count` samples of `total` seconds together, all to the bucket of their mean."""
        each = total / count
        self.count += count
        self.total += total
        if each > self.maximum:
            self.maximum = each
        nanoseconds = min(int(each * 1e9), 1 << 60)
        bucket = (nanoseconds - 1).bit_length() - _FIRST_BUCKET if nanoseconds > 1 else 0
        self.buckets[min(max(bucket, 0), _BUCKETS - 1)] += count

    def numbers(self) -> tuple[int, int, int, tuple[int, ...]]:
        """The arguments of hotloop.metrics.Delays."""
        return (self.count, int(self.total * 1e9), int(self.maximum * 1e9), tuple(self.buckets))


class Measurements:
    """The measurements of one loop. All times are in seconds, by clock()."""

    # Not time.monotonic(), which tools freeze: polling must go on.
    # Hot paths copy it to a local variable first: the interpreter does not specialize calls of non-method attributes.
    clock: ClassVar[Any] = staticmethod(monotonic)

    __slots__ = (
        *("batch", "items", "cancelled", "iterations", "polls", "steps"),
        *("next_poll", "slice", "pause", "empty_polls", "due_by"),
        *("last_reading", "slice_began", "slice_items", "slice_iterations", "before_last_batch", "running", "waiting"),
        *("busy", "idle", "delay", "lateness", "longest", "longest_item"),
        *("measuring", "time_items", "slices_to_time", "slow_after", "slow_hook", "cpu_reading", "cpu_read_at"),
        *("bytes_received", "receives", "bytes_sent", "sends", "pipes"),
    )

    def __init__(self) -> None:
        self.next_poll = 0.0
        self.slice = TIME_SLICE  # the longest time from one poll to the next
        self.pause = 0.0  # the time from the last poll to the next
        self.empty_polls = 0  # polls in a row that found nothing, up to PATIENCE
        self.due_by = inf  # by the loop's time(): a timer with a later deadline can wait for the next poll
        # What is left of the running batch; None while the loop polls or does not run. It lets other threads see the
        # progress, and counts without any code per item.
        self.batch: repeat[None] | None = None
        self.items = 0  # callbacks and task steps that were begun, plus what is left of the batch
        self.cancelled = 0  # those of them that were cancelled handles and did not run
        self.iterations = self.polls = self.steps = 0
        self.last_reading = self.slice_began = 0.0
        self.slice_items = self.slice_iterations = 0  # `items` and `iterations` when the slice began
        self.before_last_batch: float | None = None  # the age of the slice when its last, long batch began
        self.running = self.waiting = False
        self.busy = self.idle = 0.0
        self.delay, self.lateness = Histogram(), Histogram()
        self.longest = 0.0
        self.longest_item: tuple[Any, ...] | None = None
        self.measuring = False  # the program has asked for metrics
        self.time_items = False  # each callback of this slice is timed
        self.slices_to_time = 0  # the number of coming slices whose callbacks are timed in any case
        self.slow_after = 0.0  # the hook's threshold, in seconds
        self.slow_hook: Callable[..., object] | None = None
        self.cpu_reading: float | None = None  # of the thread's CPU clock; None: none in this run, or no such clock
        self.cpu_read_at = 0.0
        self.bytes_received = self.receives = self.bytes_sent = self.sends = 0
        self.pipes: WeakSet[Any] = WeakSet()  # the transports of pipes

    # -- polls ---------------------------------------------------------------------------------------------------------

    def backoff_after_poll(self, empty: bool) -> float:
        """How long, in seconds, queued callbacks may delay the next poll. `empty`: the last one found nothing."""
        if not empty:
            self.empty_polls = 0
            self.pause = 0.0
        elif self.empty_polls < PATIENCE:
            self.empty_polls += 1
        elif threads_beside_the_first():
            self.pause = 0.0  # one may wait for the GIL, which polls release
        else:
            self.pause = min(2 * self.pause or FIRST_PAUSE, self.slice)
        return self.pause

    # -- batches -------------------------------------------------------------------------------------------------------

    def progress(self) -> int:
        """See LoopCore._progress()."""
        batch = self.batch
        return -1 if batch is None else self.items - length_hint(batch)

    def enter(self, outer: "repeat[None]") -> None:
        """A batch begins inside a callback of the `outer` one."""
        self.items -= length_hint(outer)

    def leave(self, outer: "repeat[None] | None", batch: "repeat[None]") -> None:
        """A batch is over, either early or inside a callback of an `outer` one."""
        self.items -= length_hint(batch)
        if outer is not None:
            self.items += length_hint(outer)

    def report_long_batch(self, loop: Any, began: float, handle: Any, items: int, timed: bool) -> None:
        """A batch has taken longer than the time slice; `handle` was its last. `timed`: its items were reported."""
        self.before_last_batch = began - self.slice_began
        if not timed and self.slow_hook is None:
            self.report_slow(loop, handle if items == 1 else None, self.last_reading - began, of=items)

    def report_long_part(self, loop: Any, began: float, handle: Any, items: int) -> None:
        """`items` of a batch have run untimed, `handle` as the last of them; the others will be timed."""
        self.last_reading = self.clock()
        if self.last_reading - began > TIME_SLICE and self.slow_hook is None:
            self.report_slow(loop, handle if items == 1 else None, self.last_reading - began, of=items)

    def cpu_clock_before_item(self, clock: Callable[[], float]) -> float | None:
        """For the hook: the CPU clock in seconds for a callback that begins now, at `last_reading`; None: there is no
        such clock.

        Only a slow callback shows afterwards that it was wanted, so it takes the last reading if that is hardly older.
        What the thread did in between counts as the callback's. The callback begins after a new reading."""
        if self.cpu_reading is None or self.last_reading - self.cpu_read_at >= self.slow_after * CPU_READING_AGE:
            self.cpu_reading = cpu_clock()
            self.last_reading = self.cpu_read_at = clock()
        return self.cpu_reading

    def report_slow(self, loop: Any, handle: Any, seconds: float, cpu_began: float | None = None, of: int = 1) -> None:
        """A handle has taken so many seconds, and `cpu_began` was the CPU clock before it; or (`handle` is None) `of`
        handles have, and it is not known which.

        Raises only what ends the run of the loop."""
        if seconds > self.longest:
            if handle is None:
                self.slices_to_time = SLICES_TO_TIME
            try:
                self.longest_item = (int(seconds * 1e9), of, *describe(handle))
                self.longest = seconds
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:
                # There is no memory for it: the next that takes longer than the last one recorded gets a record.
                pass
        if self.slow_hook is not None and of == 1 and seconds >= self.slow_after:
            try:
                cpu = cpu_seconds_since(cpu_began)
                # The first reading may be older than the callback, and the second was taken after it had ended.
                self.slow_hook(loop, seconds, None if cpu is None else min(cpu, seconds), handle)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:
                # The hook reports the exceptions of the program's. This one is its own: it has no memory.
                pass
            # The time of the hook does not count for the next callback.
            self.last_reading = self.clock()

    # -- slices --------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The loop begins to run. The time before does not count."""
        self.last_reading = now
        self.cpu_reading = None  # the last run may have been in another thread
        self.running = True
        if self.measuring:
            self.begin_slice()

    def begin_slice(self) -> None:
        """The first slice of a run, or of measuring: nothing is known of its callbacks, so each is timed."""
        self.slice_began = self.last_reading
        self.slice_items = self.items
        self.slice_iterations = self.iterations
        self.before_last_batch = None
        self.time_items = True

    def end(self, now: float) -> None:
        """The loop stops running."""
        self.last_reading = now
        self.waiting = False
        if self.measuring:
            self.end_slice()
        self.running = False

    def measure(self, now: float) -> None:
        """Begin to measure times."""
        self.measuring = True
        if self.running:
            self.last_reading = now
            self.begin_slice()

    def end_slice(self) -> None:
        """All callbacks since the last poll have ended, at the last reading of the clock."""
        passed = self.last_reading - self.slice_began
        batches = self.iterations - self.slice_iterations
        if batches > 0:
            if self.before_last_batch is not None and batches > 1 and 0 <= self.before_last_batch <= passed:
                self.delay.add(batches - 1, self.before_last_batch)
                self.delay.add(1, passed - self.before_last_batch)
            else:
                self.delay.add(batches, passed)
            self.time_items = passed > (self.items - self.slice_items) * LONG_CALLBACK
            if self.slices_to_time:
                self.slices_to_time -= 1
                self.time_items = True
        self.busy += passed
        self.before_last_batch = None
        self.slice_began = self.last_reading
        self.slice_items = self.items
        self.slice_iterations = self.iterations

    def polled(self, now: float) -> None:
        """A poll has ended."""
        passed = now - self.last_reading
        if self.waiting:
            self.idle += passed
        else:
            self.busy += passed
        self.last_reading = self.slice_began = now

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def received(self, result: Any) -> None:
        """Count the `result` of a socket's method that receives. The socket may be any object, so may the result."""
        least = 1  # the end of a stream does not count, an empty datagram does
        if type(result) is tuple and result:
            result = result[0]
            least = 0
        if type(result) is bytes:
            result = len(result)
        if type(result) is int and result >= least:
            self.bytes_received += result
            self.receives += 1

    def sent(self, result: Any) -> None:
        """Count the `result` of a socket's method that sends."""
        if type(result) is int and result >= 0:
            self.bytes_sent += result
            self.sends += 1

    # -- results -------------------------------------------------------------------------------------------------------

    def numbers(self, now: float) -> dict[str, Any]:
        """The fields of hotloop.Metrics that are kept here."""
        busy, idle = self.busy, self.idle
        if self.waiting:
            idle += now - self.last_reading
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
            "longest_callback": self.longest_item,
            "bytes_received": self.bytes_received,
            "receives": self.receives,
            "bytes_sent": self.bytes_sent,
            "sends": self.sends,
        }


def cpu_seconds_since(began: float | None) -> float | None:
    """The processor time of this thread since its CPU clock was `began`; None if that is not known."""
    now = None if began is None else cpu_clock()
    return None if began is None or now is None else now - began
