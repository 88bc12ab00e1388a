"""What loop.metrics() returns: a snapshot of an event loop's numbers. Two snapshots can be subtracted.

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
"""The inclusive upper bounds of the buckets of Delays, in nanoseconds: from 1.024 us, doubling, to 17 s. One more
bucket counts everything longer."""


@dataclass(frozen=True, slots=True)
class Delays:
    """The number of samples of a duration, and their distribution. Times are in nanoseconds."""

    count: int
    total_ns: int
    maximum_ns: int
    """The longest sample, 0 if there is none. In a difference: exact if the longest sample ever lies between the two
    snapshots; otherwise an upper bound taken from the buckets, because the maximum of an interval is not kept."""
    buckets: tuple[int, ...]
    """The number of samples in each bucket: above the previous of BUCKET_BOUNDS_NS, up to and including the next."""

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
    """The callback or task step that took longest, as text and numbers: it is not kept alive."""

    duration_ns: int
    candidates: int
    """1 if it is known which callback it was. Otherwise it was one of so many, `duration_ns` is the time of all of them
    together and `name` is None: the loop does not read the clock for each callback of a batch of short ones."""
    name: str | None
    """The qualified name of the callback, without any functools.partial; for a task step that of the coroutine; for
    the work of a transport that of the protocol's class. None: not known."""
    file: str | None
    """The file of its code; None if it is not written in Python."""
    line: int | None
    """The first line of its code."""
    task: str | None
    """The name of the task, if it was a task step."""


@dataclass(frozen=True, slots=True)
class SlowCallback:
    """The argument of a hook that was set with loop.set_slow_callback_hook()."""

    duration: float
    """In seconds."""
    name: str | None
    """The qualified name. This and the next three fields are as in LongestCallback."""
    file: str | None
    line: int | None
    task: str | None
    handle: Any
    """The asyncio.Handle, asyncio.Task or transport that the loop has run. A handle keeps its arguments alive."""
    cpu_time: float | None = None
    """For how many seconds of the duration the loop's thread was on a processor; at most 1% of the hook's threshold too
    much. The rest it waited: in a call that blocks, for the GIL, or for the system to let it run. None: not known."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """A snapshot of an event loop. All fields but the gauges are counters: they start with the loop and never decrease.

    `later - earlier` is what happened between two snapshots of one loop; its gauges are those of `later`. Raises
    ValueError if a counter would be negative, TypeError for anything but a Metrics.
    """

    time_ns: int
    """When it was taken, by time.monotonic_ns(). In a difference: the nanoseconds between the snapshots."""
    iterations: int
    """Batches of callbacks that the loop has begun to run. Empty batches are not counted."""
    polls: int
    """How often the loop has asked the kernel for I/O. After many polls in vain, iterations that find work queued skip
    it."""
    callbacks: int
    """What the loop has begun to run from its ready queue: callbacks, task steps and transports with work to do.
    Cancelled handles are not counted."""
    task_steps: int
    """Steps of tasks of class hotloop.Task, including eager first steps. Tasks of asyncio's class are not counted."""
    busy_ns: int
    """Nanoseconds in which the loop ran callbacks or polled without waiting."""
    idle_ns: int
    """Nanoseconds in polls that were allowed to wait. Time in which the loop did not run is neither busy nor idle."""
    scheduling_delay: Delays
    """One sample for each batch of callbacks that has ended: its duration, which is how long a callback at the end of
    the queue waits. The samples are taken when the loop polls. All batches between two polls but the last are shorter
    than 0.1 ms, and each is counted with their mean."""
    timer_lateness: Delays
    """One sample for each poll that found timers due: how late the earliest of them was, by the loop's clock. If the
    deadline was past already when the timer was set, its lateness counts from the previous poll."""
    longest_callback: LongestCallback | None
    """None as long as none has taken 0.1 ms. In a difference: None unless the longest ever lies in between."""
    ready: int
    """Callbacks that are queued now. This and the next five fields are gauges."""
    timers: int
    """Timers that are pending."""
    transports: Mapping[str, int] = field(hash=False)
    """Open transports by kind: "tcp", "stream" (other stream sockets), "datagram", "read_pipe", "write_pipe". A TLS
    connection counts as the transport below it."""
    watched: Mapping[str, int] = field(hash=False)
    """Descriptors that the selector watches, by purpose: "transport", "server", "callback" (add_reader() and
    add_writer()), "sock_method" (sock_recv() and its like), "process", "other". Zeros are left out."""
    names_resolving: int
    """Names on which a thread of the loop's works now, including those whose caller has given up."""
    names_waiting: int
    """Names that wait until one of these threads is free."""
    names: int
    """Calls of getaddrinfo() and getnameinfo() that the loop has handed to these threads. Address literals and names
    that go to the default executor are not counted."""
    bytes_received: int
    """Bytes received from sockets and pipes by transports and the loop's sock_*() methods. The page on metrics says
    what is not counted."""
    receives: int
    """System calls that have received something."""
    bytes_sent: int
    """Bytes sent to sockets and pipes by transports and the loop's sock_*() methods."""
    sends: int
    """System calls that have sent something."""

    @property
    def utilization(self) -> float:
        """The fraction of its running time in which the loop was busy, from 0.0 to 1.0."""
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
            names_resolving=self.names_resolving,
            names_waiting=self.names_waiting,
        )


_COUNTERS = (
    *("time_ns", "iterations", "polls", "callbacks", "task_steps", "busy_ns", "idle_ns", "names"),
    *("bytes_received", "receives", "bytes_sent", "sends"),
)


def snapshot(measured: dict[str, Any], watched: dict[str, int]) -> Metrics:
    """The Metrics made of what a loop has measured."""
    for name in ("scheduling_delay", "timer_lateness"):
        measured[name] = Delays(*measured[name])
    if measured["longest_callback"] is not None:
        measured["longest_callback"] = LongestCallback(*measured["longest_callback"])
    return Metrics(time_ns=time.monotonic_ns(), watched=watched, **measured)
