"""Polling: waiting for I/O and timers, and what is queued for them. An iteration begins with it, if a poll is due.

poll() ends the time slice, waits for I/O if nothing is queued, dispatches the events to their watchers, which queue
themselves, and queues the timers that are due. So callbacks have the order that asyncio promises: those queued earlier,
then I/O, then timers.

asyncio polls in every iteration. So does this loop while polls find something. After many polls in vain in a row it
skips polls while work is queued or a timer is due, for longer each time (poll_backoff.h), but never for longer than a
time slice. A timer that was due when it was set does not wait for the next poll. So I/O and other timers wait at most
for one slice and the batch under way, however busy the loop is, and short callbacks without I/O do not cost a system
call each.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.clock_rate cimport SLICE
from hotloop._c.loop.replaceable_methods cimport clock_is_patched
from hotloop._c.loop.state cimport (
    TIMING_METRICS,
    backoff_is_over,
    backoff_reset,
    loop_metrics,
    metrics_histogram,
    poll_backoff,
)
from hotloop._c.loop.task_creation cimport TaskCreation
from hotloop._c.poller.poller cimport poller_batch, fork_number
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_MORE, Watcher
from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    load_acquire_bint,
    published_size,
    shared_fence,
    shared_set,
    store_release_bint,
)
from hotloop._c.scheduler.ready_queue cimport type_version_of
from hotloop._c.scheduler.timers cimport earliest, timer_heap_first
from hotloop._c.tasks.current_task cimport leave_task

from sys import getswitchinterval

from hotloop._asyncio.bytecode import run_bytecode

cdef extern from *:
    """
    /* Whether PyThreadState_SetAsyncExc() has set an exception for this thread. */
    static inline int has_async_exception(void)
    {
        return __atomic_load_n(&PyThreadState_Get()->async_exc, __ATOMIC_RELAXED) != NULL;
    }
    """
    bint has_async_exception() noexcept

cdef extern from "system/clock.h":
    uint64_t clock_ticks()

cdef extern from "loop/poll_backoff.h":
    void backoff_polled(poll_backoff *, uint64_t now, bint empty) noexcept

cdef extern from "loop/metrics.h":
    void metrics_end_slice(loop_metrics *) noexcept
    void metrics_polled(loop_metrics *, uint64_t now, bint waited) noexcept
    void metrics_add(metrics_histogram *, uint64_t count, double total) noexcept
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

# A time slice in seconds, with room for differences between the two clocks and their readings.
cdef double SLICE_SECONDS = 2 * SLICE * 1e-9
# asyncio's upper bound for one wait, in seconds.
cdef double LONGEST_WAIT = 24 * 3600.0
# How long polls that cannot block keep the GIL, in switch intervals: see gil_is_due().
cdef int GIL_HELD_INTERVALS = 4
# For so many time slices after a thread's call_soon_threadsafe(), each poll releases the GIL.
cdef int GIL_OFFERED_SLICES = 10


cdef class Polling(TaskCreation):
    """The part of LoopCore that polls."""

    cdef int poll(self) except -1:
        """Queue the callbacks of ready I/O and due timers; wait for some if nothing is queued.

        Where a due timer is the only reason to poll now, the kernel is asked no more often than beside queued work."""
        cdef uint64_t polled_before = self.metrics.backoff.polled_at
        cdef double wait
        store_release_bint(&self.poll_next, False)
        if load_acquire_bint(&self.thread_called):
            store_release_bint(&self.thread_called, False)
            self.thread_called_at = clock_ticks()
            backoff_reset(&self.metrics.backoff)
        self.fork_number = fork_number()
        self.leave_current_task()
        if self.type_version != type_version_of(self):
            self.find_overrides()
        wait = self.wait_time()
        if (
            wait != 0
            or backoff_is_over(&self.metrics.backoff, clock_ticks())
            or self.time_replacement is not None
            or clock_is_patched()
        ):
            self.poll_selector(wait)
        if self.timers.heap.live:
            self.expire_timers(polled_before)
        else:
            # Not worth reading the clock: the next call_at() asks for a poll.
            self.slice_ends = INFINITY
        return 0

    cdef int poll_selector(self, double wait) except -1:
        """End the slice, and queue the callbacks of ready I/O. `wait`: for how many seconds; -1: without limit."""
        # Kept, because a metaclass's code may answer what the selector's select() is, and replace the selector.
        cdef PollerSelector poller = self.poller
        self.end_slice()
        self.metrics.waiting = wait != 0
        if poller is not None and self.process_events_is_original and poller.select_is_original():
            return self.poll_natively(wait)
        return self.poll_as_asyncio(wait)

    cdef int expire_timers(self, uint64_t polled_before) except -1:
        """Queue what is due. Where no poll came before it, the lateness is not counted: it has one sample a poll."""
        cdef bint patched
        cdef double now = self.current_time(&patched), due, first
        if patched:
            # It may jump at any time, so the next iteration polls, too.
            self.poll_next = True
        due = self.due_until(now, patched)
        first = self.timers.expire(due, self.ready)
        if first <= now and polled_before != self.metrics.backoff.polled_at:
            self.note_timer_lateness(now - first, polled_before)
        self.slice_ends = due + SLICE_SECONDS
        return 0

    cdef int end_slice(self) noexcept:
        """Before a poll: add up the slice that ends, and decide whether to time each item of the next."""
        if self.batch_running:
            # A callback runs the loop: it has run since the clock was read.
            self.metrics.last_reading = clock_ticks()
        metrics_end_slice(&self.metrics)
        self.timing = self.timing & ~TIMING_METRICS | (TIMING_METRICS if self.metrics.time_items else 0)
        return 0

    cdef double wait_time(self) except? -2:
        """How long the poll may block, in seconds; -1: without limit."""
        cdef double now, wait
        cdef bint patched
        if published_size(&self.ready.count) or self.stopping:
            return 0
        self.ready.shrink()
        self.timers.shrink()
        if not self.timers.heap.live:
            return -1
        now = self.current_time(&patched)
        # A replaced clock may have queued a callback, or cancelled the last timer.
        if published_size(&self.ready.count):
            return 0
        if not self.timers.heap.live:
            return -1
        wait = (earliest(self.timers) if FREE_THREADED else timer_heap_first(&self.timers.heap).deadline) - now
        return min(wait, LONGEST_WAIT) if wait > 0 else 0

    cdef int poll_natively(self, double wait) except -1:
        cdef PollerSelector poller = self.poller
        cdef poller_batch *batch
        cdef int64_t nanoseconds
        cdef int count
        cdef bint release_gil = wait != 0
        if release_gil:
            store_release_bint(&self.program_selects, False)
            wait = self.fall_asleep(wait)
        else:
            PyErr_CheckSignals()
            release_gil = self.gil_is_due()
        # Rounded up, because no timer may fire early.
        nanoseconds = <int64_t>(wait * 1e9) + 1 if wait > 0 else <int64_t>wait
        batch = poller.wait(nanoseconds, release_gil, &count)
        shared_set(&self.asleep, 0)
        self.end_poll(count > 0)
        if release_gil:
            self.gil_released_at = self.metrics.backoff.polled_at
        try:
            self.dispatch(poller, batch, count)
        finally:
            poller.recycle_batch(batch)
        if release_gil and has_async_exception():
            # Raised here it ends the run, as under asyncio. A callback would take it for an error of its own.
            run_bytecode()
        return 0

    cdef bint gil_is_due(self) noexcept:
        """Whether a poll that cannot block gives other threads the GIL.

        A thread that has waited for the GIL for a whole switch interval asks for it, and the interpreter hands it over
        between two bytecodes. A poll that releases the GIL wakes such a thread, but mostly has it back before the
        thread runs, which then waits for a whole interval anew: releases now and then would starve it. A thread that
        has called call_soon_threadsafe() needs the GIL soon, to wait for more work. So for a while each poll releases
        it, and the thread catches one of many. Otherwise one poll does so every few intervals, because callbacks in C
        run no bytecode between which the interpreter could hand it over."""
        cdef uint64_t now = clock_ticks()
        cdef double slices
        if FREE_THREADED:
            # No thread waits for a GIL, but the collector waits until this thread lets it stop the world.
            return True
        if now - self.thread_called_at < GIL_OFFERED_SLICES * self.metrics.slice_ticks:
            return True
        if now - self.gil_released_at < self.gil_held_ticks:
            return False
        try:
            # The program may change the interval at any time.
            slices = GIL_HELD_INTERVALS * min(<double>getswitchinterval(), 1e6) * 1e9 / SLICE
            self.gil_held_ticks = <uint64_t>(slices * self.metrics.slice_ticks)
        except MemoryError:
            # For the number. The next poll asks again.
            pass
        return True

    cdef double fall_asleep(self, double wait) noexcept:
        """From here on other threads must wake the loop. Returns how long the loop may wait: not at all if a thread
        that still saw it awake has queued a callback since the queue was checked."""
        shared_set(&self.asleep, 1)
        shared_fence()
        if published_size(&self.ready.count):
            return 0
        return wait

    cdef int end_poll(self, bint found) noexcept:
        """A poll has ended, and a new slice begins."""
        cdef uint64_t now = clock_ticks()
        backoff_polled(&self.metrics.backoff, now, not (found or self.metrics.waiting))
        metrics_polled(&self.metrics, now, self.metrics.waiting)
        return 0

    cdef int poll_as_asyncio(self, double wait) except -1:
        """Poll by the methods of asyncio's loop: for another selector than hotloop's, and for overridden methods."""
        if wait:
            store_release_bint(&self.program_selects, True)
            wait = self.fall_asleep(wait)
        # The attribute, because a subclass may define it in the class. Test clocks add up what they are asked to wait.
        ready = self._selector.select(None if wait < 0 else wait)
        shared_set(&self.asleep, 0)
        self.end_poll(bool(ready))
        self._process_events(ready)
        return 0

    cdef int note_timer_lateness(self, double seconds, uint64_t polled_before) noexcept:
        """A timer that was due already when it was set counts as late only since the previous poll."""
        cdef uint64_t passed = metrics_passed(polled_before, self.metrics.backoff.polled_at)
        cdef double known = <double>passed * self.metrics.nanoseconds_per_tick
        metrics_add(&self.metrics.lateness, 1, min(seconds * 1e9, known))
        return 0

    cdef int leave_current_task(self) except -1:
        """End the step of the task that ran last: see Task.run()."""
        cdef object task = self.ready.entered_task
        if task is not None:
            self.ready.entered_task = None
            leave_task(self, task)
        return 0

    # -- dispatching events --------------------------------------------------------------------------------------------

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
                    self.report_and_rearm(poller, fd, error)
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
                    foreign[0] = True
                    self.dispatch_foreign(held, happened)
                    foreign[0] = False
                # Before the next event is looked up: it may be the last reference, and a finalizer may register others.
                held = None
            next[0] += 1
        return 0

    cdef int dispatch_foreign(self, object entry, int happened) except -1:
        """Dispatch an event of asyncio's kind of entry, which the program has registered with the selector itself. An
        error ends the run of the loop, as under asyncio."""
        self._process_events([(entry, happened)])
        return 0

    cdef int report_and_rearm(self, PollerSelector poller, int fd, object error) except -1:
        """Report a watcher that failed, and have the poller rearm its event."""
        poller.rearm(fd)
        self.call_exception_handler(
            {"message": f"Exception while an event of file descriptor {fd} was dispatched", "exception": error}
        )
        return 0

    def _process_events(self, event_list):
        """Queue the callbacks for what select() returned: for code that runs the loop itself."""
        foreign = []
        for key, happened in event_list:
            # Asked for once: a key of the program's may answer differently the next time.
            data = key.data
            if isinstance(data, Watcher):
                try:
                    # select() does not say whether one read takes all there is.
                    (<Watcher>data).on_events(<int>happened | POLLER_MORE)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    if self.poller is None:
                        raise
                    self.report_and_rearm(self.poller, key.fd, error)
            else:
                foreign.append((key, happened))
        super()._process_events(foreign)
