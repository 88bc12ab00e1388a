"""LoopPolling: when a loop looks at I/O and timers, how long it waits for them, and what ends the wait.

asyncio polls in every iteration. So does this loop while polls find something. After many polls in vain in a row it
skips polls while work is queued, for longer each time (poll_backoff.h), but never for longer than SLICE_NANOSECONDS,
and not when a timer was set that is due already. So I/O and timers wait at most for one slice and the batch under way,
however busy the ready queue is, and short callbacks without I/O do not cost a system call each.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.state cimport (
    TIMING_METRICS,
    LoopState,
    backoff_reset,
    loop_metrics,
    metrics_histogram,
    poll_backoff,
)
from hotloop._c.poller.selector cimport PollerSelector, poller_batch, process_generation
from hotloop._c.poller.watcher cimport POLLER_MORE, Watcher
from hotloop._c.scheduler.ready_queue cimport published_size, type_version_of
from hotloop._c.scheduler.thread_inbox cimport shared_flag
from hotloop._c.scheduler.timers cimport earliest, timer_heap_first

cdef extern from "system/clock.h":
    int64_t clock_nanoseconds()
    uint64_t clock_ticks()
    void clock_both(int64_t *nanoseconds, uint64_t *ticks)
    uint64_t clock_ticks_per_slice(int64_t nanoseconds)

cdef extern from "loop/poll_backoff.h":
    void backoff_polled(poll_backoff *, uint64_t now, bint empty) noexcept
    bint backoff_is_over(const poll_backoff *, uint64_t now) noexcept

cdef extern from "runtime/locking.h":
    bint FREE_THREADED
    void shared_set(shared_flag *, int)
    int shared_get(shared_flag *)
    int shared_peek(shared_flag *)
    int shared_exchange(shared_flag *, int)
    bint seen_bint "seen_get" (bint *)
    unsigned int seen_version "seen_get" (unsigned int *)

cdef extern from "loop/metrics.h":
    enum:
        METRICS_LONG_CALLBACK
    void metrics_begin(loop_metrics *, uint64_t now) noexcept
    void metrics_end_slice(loop_metrics *) noexcept
    void metrics_polled(loop_metrics *, uint64_t now, bint waited) noexcept
    void metrics_end(loop_metrics *, uint64_t now) noexcept
    void metrics_add(metrics_histogram *, uint64_t count, double total) noexcept
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

# How long queued work may put off the next poll.
SLICE_NANOSECONDS = 100_000
cdef int64_t SLICE = SLICE_NANOSECONDS
# The same, with room for differences between the two clocks and their readings.
cdef double SLICE_SECONDS = 2 * SLICE_NANOSECONDS * 1e-9
# asyncio's upper bound for one wait, in seconds.
cdef double LONGEST_WAIT = 24 * 3600.0
# A poll that cannot block keeps the GIL. Every 8th releases it, or callbacks that are all C would starve other threads.
cdef unsigned int POLLS_PER_GIL_RELEASE = 8

cdef uint64_t slice_ticks = clock_ticks_per_slice(SLICE_NANOSECONDS)
# The time at which this module was loaded, by both clocks.
cdef int64_t loaded_nanoseconds
cdef uint64_t loaded_ticks
clock_both(&loaded_nanoseconds, &loaded_ticks)


cdef double nanoseconds_in_a_tick() noexcept:
    """A better estimate the longer the process has run. 0: the counter is not to be trusted."""
    cdef uint64_t before, after
    cdef int64_t passed
    cdef double first, rate
    if slice_ticks == 0:
        return 0
    first = <double>SLICE / <double>slice_ticks
    before = clock_ticks()
    passed = clock_nanoseconds() - loaded_nanoseconds
    after = clock_ticks()
    if passed < 20 * SLICE or after - before > slice_ticks // 10:
        return first
    rate = <double>passed / <double>(before - loaded_ticks)
    # The two clocks may disagree on whether time passed while the machine slept.
    return rate if 0.98 * first < rate < 1.02 * first else first


cdef class LoopPolling(LoopState):
    """The part of LoopCore that polls."""

    # -- supplied by LoopCore -----------------------------------------------------------------------------------------

    cdef int find_overrides(self) except -1:
        """Find the methods that are overridden, after `type_version` has changed."""
        raise NotImplementedError

    cdef double current_time(self) except? -1:
        """time(), or its replacement, in seconds."""
        raise NotImplementedError

    cdef int leave_current_task(self) except -1:
        """End the step of the task that ran last."""
        raise NotImplementedError

    # -- polling -------------------------------------------------------------------------------------------------------

    cdef bint must_poll(self) noexcept:
        """Whether the next iteration polls, however recent the last poll is. A class that was changed may have another
        clock."""
        return (
            published_size(&self.ready.count) == 0
            or self.poll_next
            or self.type_version != type_version_of(self)
            or self.time_replacement is not None
            or (FREE_THREADED and shared_peek(&self.inbox.filled))
        )

    cdef bint poll_is_due(self) noexcept:
        return self.must_poll() or backoff_is_over(&self.metrics.backoff, clock_ticks())

    cdef int poll(self) except -1:
        """Queue the callbacks of ready I/O and due timers; wait for some if nothing is queued."""
        cdef int64_t nanoseconds
        cdef uint64_t polled_before = self.metrics.backoff.polled_at
        cdef double now, first
        self.poll_next = False
        self.process_generation = process_generation()
        self.leave_current_task()
        if self.type_version != type_version_of(self):
            self.find_overrides()
        if self.in_turn:
            # A callback runs the loop: it has run since the clock was read.
            self.metrics.last_reading = clock_ticks()
        metrics_end_slice(&self.metrics)
        self.timing = self.timing & ~TIMING_METRICS | (TIMING_METRICS if self.metrics.time_items else 0)
        nanoseconds = self.wait_time()
        self.metrics.waiting = nanoseconds != 0
        if self.poller is not None and self.process_events_is_original and self.poller.select_is_original():
            self.poll_own_selector(nanoseconds)
        else:
            self.poll_foreign_selector(nanoseconds)
        if FREE_THREADED:
            self.empty_inbox()
        if self.timers.heap.live:
            now = self.current_time()
            first = self.timers.expire(now, self.ready)
            if first <= now:
                self.note_timer_lateness(now - first, polled_before)
            self.slice_ends = now + SLICE_SECONDS
        else:
            # Not worth reading the clock: the next call_at() asks for a poll.
            self.slice_ends = INFINITY
        return 0

    cdef int begin_metrics(self) noexcept:
        """The loop begins to run. Its first iteration polls: a program may run a single one just for its I/O."""
        cdef uint64_t now = clock_ticks()
        self.metrics.nanoseconds_per_tick = nanoseconds_in_a_tick()
        self.metrics.slice_ticks = slice_ticks
        self.metrics.long_ticks = METRICS_LONG_CALLBACK * slice_ticks // SLICE
        self.metrics.backoff.polled_at = now
        self.metrics.backoff.slice = slice_ticks
        backoff_reset(&self.metrics.backoff)
        metrics_begin(&self.metrics, now)
        return 0

    cdef int end_metrics(self) noexcept:
        """The loop stops running."""
        metrics_end(&self.metrics, clock_ticks())
        return 0

    cdef int note_timer_lateness(self, double seconds, uint64_t polled_before) noexcept:
        """A timer that was due already when it was set counts as late only since the previous poll."""
        cdef uint64_t passed = metrics_passed(polled_before, self.metrics.backoff.polled_at)
        cdef double known = <double>passed * self.metrics.nanoseconds_per_tick
        metrics_add(&self.metrics.lateness, 1, min(seconds * 1e9, known))
        return 0

    cdef int end_poll(self, bint found) noexcept:
        """A poll has ended, and a new slice begins."""
        cdef uint64_t now = clock_ticks()
        backoff_polled(&self.metrics.backoff, now, not (found or self.metrics.waiting))
        metrics_polled(&self.metrics, now, self.metrics.waiting)
        return 0

    cdef int64_t wait_time(self) except? -2:
        """How long the poll may block, in nanoseconds; -1: without limit."""
        cdef double wait
        if published_size(&self.ready.count) or self.stopping:
            return 0
        self.ready.shrink()
        if not self.timers.heap.live:
            return -1
        if FREE_THREADED:
            wait = earliest(self.timers) - self.current_time()
        else:
            wait = timer_heap_first(&self.timers.heap).deadline - self.current_time()
        if wait > LONGEST_WAIT:
            wait = LONGEST_WAIT
        return <int64_t>(wait * 1e9) + 1 if wait > 0 else 0

    cdef int poll_own_selector(self, int64_t nanoseconds) except -1:
        cdef PollerSelector poller = self.poller
        cdef poller_batch *batch
        cdef int count
        cdef bint release_gil = nanoseconds != 0
        if release_gil:
            nanoseconds = self.fall_asleep(nanoseconds)
        else:
            PyErr_CheckSignals()
            self.polls_with_gil += 1
            release_gil = self.polls_with_gil >= POLLS_PER_GIL_RELEASE
        if release_gil:
            self.polls_with_gil = 0
        batch = poller.wait(nanoseconds, release_gil, &count)
        shared_set(&self.asleep, 0)
        self.end_poll(count > 0)
        try:
            self.dispatch(poller, batch, count)
        finally:
            poller.recycle_batch(batch)
        return 0

    cdef int64_t fall_asleep(self, int64_t nanoseconds) noexcept:
        """From here on other threads must wake the loop. Returns how long the loop may wait: not at all if a thread
        that still saw it awake has queued a callback since the queue was checked."""
        shared_set(&self.asleep, 1)
        if published_size(&self.ready.count) or (FREE_THREADED and shared_get(&self.inbox.filled)):
            return 0
        return nanoseconds

    cdef int poll_foreign_selector(self, int64_t nanoseconds) except -1:
        """Poll by the methods of asyncio's loop: for another selector than hotloop's, and for overridden methods."""
        if nanoseconds:
            nanoseconds = self.fall_asleep(nanoseconds)
        # The attribute, because a subclass may define it in the class.
        ready = self._selector.select(None if nanoseconds < 0 else nanoseconds * 1e-9)
        shared_set(&self.asleep, 0)
        self.end_poll(bool(ready))
        self._process_events(ready)
        return 0

    cdef int dispatch(self, PollerSelector poller, poller_batch *batch, int count) except -1:
        """Tell the watchers of the events of a poll (watcher.pyx). If one fails, the others still get theirs."""
        cdef int index = 0, fd = -1, happened = 0
        cdef bint foreign = False
        try:
            while index < count:
                try:
                    self.dispatch_rest(poller, batch, count, &index, &foreign)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    if foreign:
                        raise
                    poller.event(batch, index, &fd, &happened)
                    index += 1
                    self.report_and_repeat(poller, fd, error)
        except BaseException:
            for index in range(index, count):
                poller.rearm_event(batch, index)
            raise
        return 0

    cdef int dispatch_rest(
        self, PollerSelector poller, poller_batch *batch, int count, int *next, bint *foreign
    ) except -1:
        """Dispatch from event `next` on, until one fails: so the usual event costs no try statement. `foreign`: the
        event that failed was asyncio's to dispatch."""
        cdef int fd = -1, happened = 0
        cdef PyObject *entry
        cdef object held
        while next[0] < count:
            entry = poller.event(batch, next[0], &fd, &happened)
            if entry != NULL:
                # Keeps the watcher alive: on_events() may have the poller forget it.
                held = <object>entry
                if poller.registrations[fd].watched:
                    (<Watcher>held).on_events(happened)
                else:
                    # The program has registered asyncio's kind of entry with the selector itself. An error ends the
                    # run of the loop, as under asyncio.
                    foreign[0] = True
                    self._process_events([(held, happened)])
                    foreign[0] = False
            next[0] += 1
        return 0

    cdef int report_and_repeat(self, PollerSelector poller, int fd, object error) except -1:
        """Report a watcher that failed, and have the poller repeat its event."""
        poller.rearm(fd)
        self.call_exception_handler(
            {"message": f"Exception while an event of file descriptor {fd} was dispatched", "exception": error}
        )
        return 0

    def _process_events(self, event_list):
        """Queue the callbacks for what select() returned: for code that runs the loop itself."""
        foreign = []
        for key, happened in event_list:
            if isinstance(key.data, Watcher):
                try:
                    # select() does not say whether one read takes all there is.
                    (<Watcher>key.data).on_events(<int>happened | POLLER_MORE)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    if self.poller is None:
                        raise
                    self.report_and_repeat(self.poller, key.fd, error)
            else:
                foreign.append((key, happened))
        super()._process_events(foreign)
        if FREE_THREADED:
            # The caller looks at the ready queue next, maybe by a reference from before select().
            self.empty_inbox()

    # -- waking up -----------------------------------------------------------------------------------------------------

    cdef int wake(self) except -1:
        """End the wait that the loop is in or about to begin. Only the first of a burst of calls costs anything."""
        # The version first: a thread that sees the new one also sees the overrides found with it.
        if seen_version(&self.type_version) != type_version_of(self) or not seen_bint(&self.run_once_is_original):
            # A replaced _run_once() may sleep in select(), which does not set `asleep`.
            self._write_to_self()
        elif shared_get(&self.asleep) and shared_exchange(&self.asleep, 0):
            try:
                self._write_to_self()
            except BaseException:
                shared_set(&self.asleep, 1)
                raise
        return 0

    def _write_to_self(self):
        try:
            if self.wake_poller():
                return
        except OSError:
            # The loop may still sleep: the next call_soon_threadsafe() tries again, in case asyncio's way fails, too.
            shared_set(&self.asleep, 1)
        super()._write_to_self()
