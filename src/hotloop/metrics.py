"""What loop.metrics() returns: numbers about an event loop, of which two subtract.

before = loop.metrics()
...
between = loop.metrics() - before
print(between.utilization, between.scheduling_delay.maximum_ns)
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

BUCKET_BOUNDS_NS: Final = tuple(1 << exponent for exponent in range(10, 35))
"""The inclusive upper bounds of the buckets of Delays, in nanoseconds: 1.024 us, and twice as much each time, up to
17 s. One more bucket has what is longer than the last."""


@dataclass(frozen=True, slots=True)
class Delays:
    """How many samples of a duration there were, and how long they were, in nanoseconds."""

    count: int
    total_ns: int
    maximum_ns: int
    """The longest sample, 0 if there is none. Of a difference: exact if it was the longest ever when it was taken; else
    an upper bound, which the buckets know, because the longest of a part is not kept."""
    buckets: tuple[int, ...]
    """How many samples there are between one of BUCKET_BOUNDS_NS and the next, the upper one included."""

    @property
    def mean_ns(self) -> float:
        """The mean of the samples, 0.0 if there is none."""
        return self.total_ns / self.count if self.count else 0.0

    def __sub__(self, earlier: "Delays") -> "Delays":
        if not isinstance(earlier, Delays):
            return NotImplemented
        buckets = tuple(later - before for later, before in zip(self.buckets, earlier.buckets, strict=True))
        return Delays(
            self.count - earlier.count,
            max(self.total_ns - earlier.total_ns, 0),
            self._maximum_since(earlier, buckets),
            buckets,
        )

    def _maximum_since(self, earlier: "Delays", buckets: tuple[int, ...]) -> int:
        if self.maximum_ns > earlier.maximum_ns:
            return self.maximum_ns
        highest = max((index for index, count in enumerate(buckets) if count), default=None)
        if highest is None:
            return 0
        return min(self.maximum_ns, (*BUCKET_BOUNDS_NS, self.maximum_ns)[highest])


@dataclass(frozen=True, slots=True)
class LongestCallback:
    """The callback or task step that took longest, with nothing that would keep it alive."""

    duration_ns: int
    candidates: int
    """1; or among how many it was, of which `duration_ns` is the time of all together: in a batch of short callbacks
    nobody looks at the clock for each. `name` is None then."""
    name: str | None
    """The qualified name of the callback, without any functools.partial; of a task step that of the coroutine; of what
    a transport has done that of the protocol's class. None: not known."""
    file: str | None
    """Where its code is; None for what is not written in Python."""
    line: int | None
    """The first line of it."""
    task: str | None
    """The name of the task, if it was the step of one."""


@dataclass(frozen=True, slots=True)
class SlowCallback:
    """What a hook of loop.set_slow_callback_hook() is given."""

    duration: float
    """In seconds."""
    name: str | None
    """The qualified name, as of LongestCallback, as are the next three."""
    file: str | None
    line: int | None
    task: str | None
    handle: Any
    """The asyncio.Handle, asyncio.Task or transport that the loop has run. It keeps alive what it was called with."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """A snapshot of an event loop. All but the gauges are counters that never decrease, since the loop was made.

    `later - earlier` is what happened between two snapshots of one loop; its gauges are those of `later`. ValueError if
    a counter would be negative, TypeError for anything else than a Metrics.
    """

    time_ns: int
    """When it was taken, by time.monotonic_ns(). Of a difference: the nanoseconds between."""
    iterations: int
    """Batches of callbacks that the loop has begun to run; those in which it found nothing to run are not counted."""
    polls: int
    """How often it has asked the kernel for I/O. Iterations that find work queued do without most of the time."""
    callbacks: int
    """What it has begun to run from its ready queue: callbacks, task steps and transports that had something to do.
    Handles that were cancelled are not counted."""
    task_steps: int
    """Steps of tasks of hotloop.Task, those included that an eager start has run. 0 for tasks of asyncio's class."""
    busy_ns: int
    """Nanoseconds in which the loop ran callbacks, and polled without waiting."""
    idle_ns: int
    """Nanoseconds in polls that were allowed to wait. Time in which the loop was not run is in neither."""
    scheduling_delay: Delays
    """One sample for each batch of callbacks that has ended: from its begin to its end, which is how long a callback
    waits that is queued behind all the others. The samples are taken when the loop polls. A batch that is not the last
    one between two polls is shorter than 0.1 ms, and is counted with the mean of these."""
    timer_lateness: Delays
    """One sample for each poll that found timers due: how long the first of them had been so, by the loop's clock. One
    whose deadline was past when it was set is not late before it could be known."""
    longest_callback: LongestCallback | None
    """None as long as none has taken 0.1 ms. Of a difference: None unless the longest ever came between."""
    ready: int
    """A gauge, as are the next three: callbacks that are queued now."""
    timers: int
    """Timers that are pending."""
    transports: Mapping[str, int] = field(hash=False)
    """Open transports: "tcp", "stream" (of other stream sockets), "datagram", "read_pipe", "write_pipe". TLS is what
    runs over one of them."""
    watched: Mapping[str, int] = field(hash=False)
    """Descriptors that the selector has, by whom they are for: "transport", "server", "callback" (add_reader() and
    add_writer()), "sock_method" (sock_recv() and its like), "process", "other". What there is none of is left out."""
    bytes_received: int
    """From sockets and pipes, by transports and by the loop's sock_*() methods. The page on metrics says what is not
    counted."""
    receives: int
    """System calls that have brought them."""
    bytes_sent: int
    sends: int
    """System calls that have sent something."""

    @property
    def utilization(self) -> float:
        """The part of its running time in which the loop was busy, from 0.0 to 1.0."""
        running = self.busy_ns + self.idle_ns
        return self.busy_ns / running if running else 0.0

    def __sub__(self, earlier: "Metrics") -> "Metrics":
        if not isinstance(earlier, Metrics):
            return NotImplemented
        counted = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        if min(counted.values()) < 0 or self.scheduling_delay.count < earlier.scheduling_delay.count:
            raise ValueError("not a later snapshot of the same loop")
        longest = None if self.longest_callback == earlier.longest_callback else self.longest_callback
        return Metrics(
            **counted,
            scheduling_delay=self.scheduling_delay - earlier.scheduling_delay,
            timer_lateness=self.timer_lateness - earlier.timer_lateness,
            longest_callback=longest,
            ready=self.ready,
            timers=self.timers,
            transports=self.transports,
            watched=self.watched,
        )


_COUNTERS = (
    *("time_ns", "iterations", "polls", "callbacks", "task_steps", "busy_ns", "idle_ns"),
    *("bytes_received", "receives", "bytes_sent", "sends"),
)


def snapshot(measured: dict[str, Any], watched: dict[str, int]) -> Metrics:
    """A Metrics of what a loop's core has measured."""
    for name in ("scheduling_delay", "timer_lateness"):
        measured[name] = Delays(*measured[name])
    if measured["longest_callback"] is not None:
        measured["longest_callback"] = LongestCallback(*measured["longest_callback"])
    return Metrics(time_ns=time.monotonic_ns(), watched=watched, **measured)
