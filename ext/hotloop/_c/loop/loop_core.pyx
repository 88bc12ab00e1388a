"""LoopCore: the event loop itself, that is the code that runs for every callback, poll, timer and wake-up.

hotloop.EventLoop is this class in front of asyncio.SelectorEventLoop. Everything else (servers, connecting,
subprocesses, executors, signals, TLS) is the running Python's.

In the order of this file:

- run_forever() repeats run_iteration() until stop() is called.
- An iteration begins with poll(), if one is due: poll() ends the time slice, waits for I/O if nothing is queued,
  dispatches the events to their watchers, which queue themselves, and queues the timers that are due. So callbacks have
  the order that asyncio promises: those queued earlier, then I/O, then timers.
- run_batches() then runs the callbacks that are queued by now, one batch; run_items() is its inner loop. At the end of
  the batch flush_watchers() sends what its callbacks wrote. Further batches follow until the next poll is due.
- call_soon(), call_later() and their like queue callbacks; wake() ends the loop's wait for other threads.

asyncio polls in every iteration. So does this loop while polls find something. After many polls in vain in a row it
skips polls while work is queued, for longer each time (poll_backoff.h), but never for longer than a time slice, and not
when a timer was set that is due already. So I/O and timers wait at most for one slice and the batch under way, however
busy the ready queue is, and short callbacks without I/O do not cost a system call each.

Elsewhere: the loop's attributes under asyncio's names (state.pyx), its counts and times (metrics.h), slow callbacks and
debug mode (slow_callbacks.pyx), the ready queue (scheduler/ready_queue.pxd) and timers (scheduler/timers.pyx).

Threads: a loop's state belongs to the thread that runs the loop. See locking.h for what other threads may touch.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_GenericSetAttr, PyTypeObject
from cpython.ref cimport Py_XDECREF
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.slow_callbacks cimport begin_item, report_slow, run_in_debug_mode
from hotloop._c.loop.state cimport (
    TIMING_HOOK,
    TIMING_METRICS,
    LoopState,
    backoff_reset,
    loop_metrics,
    metrics_histogram,
    poll_backoff,
)
from hotloop._c.poller.descriptor_callbacks cimport add_callback, remove_callback
from hotloop._c.poller.poller cimport poller_batch, process_generation
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_MORE, POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    PyThread_get_thread_ident,
    load_acquire_bint,
    load_acquire_id,
    load_acquire_version,
    shared_exchange,
    shared_get,
    shared_peek,
    shared_set,
    store_release_bint,
    store_release_id,
    store_release_version,
)
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.ready_queue cimport (
    NO_VERSION,
    Handle,
    ReadyQueue,
    Runnable,
    begin_caching_contexts,
    end_caching_contexts,
    new_handle,
    new_threadsafe_handle,
    pop,
    published_size,
    prefetch_item,
    push,
    queued,
    report_exception,
    retire,
    type_version_of,
)
from hotloop._c.scheduler.timers cimport TimerHandle, earliest, new_timer, timer_heap_first
from hotloop._c.system.receive cimport READ_SIZE
from hotloop._c.tasks.current_task cimport leave_task
from hotloop._c.tasks.future cimport Future, new_future
from hotloop._c.tasks.task cimport Task, new_task

import sys
from asyncio import events
from sys import getswitchinterval

cdef extern from "system/clock.h":
    double clock_seconds()
    int64_t clock_nanoseconds()
    uint64_t clock_ticks()
    void clock_both(int64_t *nanoseconds, uint64_t *ticks)
    uint64_t clock_ticks_per_slice(int64_t nanoseconds)

cdef extern from "system/malloc_threshold.h":
    void raise_malloc_threshold(size_t size)

cdef extern from "loop/poll_backoff.h":
    void backoff_polled(poll_backoff *, uint64_t now, bint empty) noexcept
    bint backoff_is_over(const poll_backoff *, uint64_t now) noexcept

cdef extern from "loop/metrics.h":
    enum:
        METRICS_LONG_CALLBACK
    void metrics_begin(loop_metrics *, uint64_t now) noexcept
    void metrics_begin_batch(loop_metrics *, Py_ssize_t items) noexcept
    uint64_t metrics_end_last_batch(loop_metrics *) noexcept
    void metrics_end_slice(loop_metrics *) noexcept
    void metrics_polled(loop_metrics *, uint64_t now, bint waited) noexcept
    void metrics_end(loop_metrics *, uint64_t now) noexcept
    void metrics_add(metrics_histogram *, uint64_t count, double total) noexcept
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

cdef extern from "runtime/fast_method.h":
    void fast_method_install(
        PyTypeObject *type,
        const char *name,
        bint (*applies)(PyObject *) noexcept,
        object (*short_cut)(object, object),
    )

cdef extern from "Python.h":
    PyObject *bytes_of_size "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL

cdef extern from "system/receive.h":
    PyObject *copy_or_take(PyObject **buffer, Py_ssize_t count) noexcept

# The time slice, in nanoseconds: how long queued work may put off the next poll.
cdef int64_t SLICE = 100_000
# The same in seconds, with room for differences between the two clocks and their readings.
cdef double SLICE_SECONDS = 2 * SLICE * 1e-9
# In a batch of this many items, they may no longer be in the processor's cache.
cdef Py_ssize_t PREFETCHED_FROM = 1000
# asyncio's upper bound for one wait, in seconds.
cdef double LONGEST_WAIT = 24 * 3600.0
# How long polls that cannot block keep the GIL, in switch intervals: see gil_is_due().
cdef int GIL_HELD_INTERVALS = 4
# For so many time slices after a thread's call_soon_threadsafe(), each poll releases the GIL.
cdef int GIL_OFFERED_SLICES = 10
# Methods that a program may replace, on the class or on the loop object: the compiled code then calls the replacement.
cdef frozenset REPLACEABLE = frozenset({"time", "call_soon", "call_at", "create_task", "_run_once", "_process_events"})
# Since 3.13.3 create_task() passes unknown keywords on to the task.
cdef bint passes_keywords_on = sys.version_info >= (3, 13, 3)


cdef inline void end_slice(LoopCore self) noexcept:
    """Before a poll: add up the slice that ends, and decide whether to time each item of the next."""
    if self.batch_running:
        # A callback runs the loop: it has run since the clock was read.
        self.metrics.last_reading = clock_ticks()
    metrics_end_slice(&self.metrics)
    self.timing = self.timing & ~TIMING_METRICS | (TIMING_METRICS if self.metrics.time_items else 0)

cdef inline bint slice_is_over(LoopCore self) noexcept:
    """At the end of a batch: read the clock; True if it is time to poll."""
    cdef uint64_t now = clock_ticks()
    self.metrics.last_reading = now
    return backoff_is_over(&self.metrics.backoff, now)


cdef class LoopCore(LoopState):
    """The scheduler of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    def __cinit__(self, *args, **kwargs):
        self.unflushed = []
        self.replaced_methods = set()

    def __dealloc__(self):
        Py_XDECREF(self.receive_bytes)

    # -- running -------------------------------------------------------------------------------------------------------

    def run_forever(self):
        """Run until stop() is called. See loop.run_forever()."""
        self._check_closed()
        self._check_running()
        self._set_coroutine_origin_tracking(self.debug)
        hooks = sys.get_asyncgen_hooks()
        self.inbox.claim()
        store_release_id(&self.thread_id, PyThread_get_thread_ident())
        self.begin_metrics()
        try:
            sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook)
            events._set_running_loop(self)
            begin_caching_contexts()
            self.run_until_stopped()
        finally:
            self.end_metrics()
            try:
                self.leave_current_task()
            finally:
                end_caching_contexts()
                self.stopping = False
                store_release_id(&self.thread_id, 0)
                events._set_running_loop(None)
                self._set_coroutine_origin_tracking(False)
                sys.set_asyncgen_hooks(*hooks)

    cdef int run_until_stopped(self) except -1:
        while True:
            if self.type_version != type_version_of(self):
                self.find_overrides()
            if self.run_once_is_original:
                self.run_iteration(True)
            else:
                self.leave_current_task()
                self._run_once()
            if self.stopping:
                return 0

    def _run_once(self):
        # The program runs the loop itself, maybe inside the step of a task that it has made no longer the current one.
        cdef object entered = self.ready.entered_task
        cdef bint alone = not self.metrics.running
        self.ready.entered_task = None
        if alone:
            self.begin_metrics()
        try:
            self.run_iteration(False)
            self.leave_current_task()
        finally:
            self.ready.entered_task = entered
            if alone:
                self.end_metrics()

    def stop(self):
        """End run_forever() after the current iteration. See loop.stop()."""
        self.stopping = True

    def is_running(self):
        """True while run_forever() runs."""
        return load_acquire_id(&self.thread_id) != 0

    def get_debug(self):
        """Whether the loop is in debug mode. asyncio's futures and tasks ask when they are made."""
        return self.debug

    def is_closed(self):
        """True after close()."""
        return load_acquire_bint(&self.closed)

    cdef int run_iteration(self, bint repeat) except -1:
        """One iteration; with `repeat`, further ones that need no poll."""
        if FREE_THREADED:
            self.empty_inbox()
        if self.poll_is_due():
            self.poll()
        return self.run_batches(repeat)

    # -- an iteration: whether to poll ---------------------------------------------------------------------------------

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

    # -- an iteration: polling -----------------------------------------------------------------------------------------

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
        end_slice(self)
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
            release_gil = self.gil_is_due()
        batch = poller.wait(nanoseconds, release_gil, &count)
        shared_set(&self.asleep, 0)
        self.end_poll(count > 0)
        if release_gil:
            self.gil_released_at = self.metrics.backoff.polled_at
        try:
            self.dispatch(poller, batch, count)
        finally:
            poller.recycle_batch(batch)
        return 0

    cdef bint gil_is_due(self) noexcept:
        """Whether a poll that cannot block gives other threads the GIL.

        A thread that waits for the GIL asks for it after a switch interval, and Python code hands it over. Releases now
        and then would starve it: each wakes it too late and makes it wait a whole interval again. So there are many,
        one in each poll, of which the thread catches one, for a while after a thread has called: having delivered a
        result, it is about to wait for more work. Otherwise there is one after some intervals, because callbacks that
        are all C see no request."""
        cdef uint64_t now = clock_ticks()
        cdef double slices
        if FREE_THREADED:
            # Nobody waits for a GIL, but the collector waits until this thread lets it stop the world.
            return True
        if self.thread_called:
            self.thread_called = False
            self.thread_called_at = now
        if now - self.thread_called_at < GIL_OFFERED_SLICES * slice_ticks:
            return True
        if now - self.gil_released_at < self.gil_held_ticks:
            return False
        try:
            # The program may change the interval at any time.
            slices = GIL_HELD_INTERVALS * min(<double>getswitchinterval(), 1e6) * 1e9 / SLICE
            self.gil_held_ticks = <uint64_t>(slices * slice_ticks)
        except MemoryError:
            pass
        return True

    cdef int64_t fall_asleep(self, int64_t nanoseconds) noexcept:
        """From here on other threads must wake the loop. Returns how long the loop may wait: not at all if a thread
        that still saw it awake has queued a callback since the queue was checked."""
        shared_set(&self.asleep, 1)
        if published_size(&self.ready.count) or (FREE_THREADED and shared_get(&self.inbox.filled)):
            return 0
        return nanoseconds

    cdef int end_poll(self, bint found) noexcept:
        """A poll has ended, and a new slice begins."""
        cdef uint64_t now = clock_ticks()
        backoff_polled(&self.metrics.backoff, now, not (found or self.metrics.waiting))
        metrics_polled(&self.metrics, now, self.metrics.waiting)
        return 0

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

    # -- an iteration: dispatching events ------------------------------------------------------------------------------

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
            if isinstance(key.data, Watcher):
                try:
                    # select() does not say whether one read takes all there is.
                    (<Watcher>key.data).on_events(<int>happened | POLLER_MORE)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    if self.poller is None:
                        raise
                    self.report_and_rearm(self.poller, key.fd, error)
            else:
                foreign.append((key, happened))
        super()._process_events(foreign)
        if FREE_THREADED:
            # The caller looks at the ready queue next, maybe by a reference from before select().
            self.empty_inbox()

    # -- an iteration: running a batch ---------------------------------------------------------------------------------

    cdef int run_batches(self, bint repeat) except -1:
        """Run the items that are queued now; those queued meanwhile are the next batch. With `repeat`, go on with
        further batches until it is time to poll or to stop."""
        cdef Py_ssize_t todo = published_size(&self.ready.count)
        cdef PyObject *running = NULL
        cdef bint outer = self.batch_running
        cdef Runnable failed
        self.batch_running = True
        if todo:
            metrics_begin_batch(&self.metrics, todo)
        try:
            while todo:
                try:
                    self.run_items(&todo, &running, repeat)
                except (SystemExit, KeyboardInterrupt):
                    Py_XDECREF(running)
                    raise
                except BaseException as error:
                    if running == NULL:
                        raise
                    failed = <Runnable>steal(running)
                    report_exception(self, failed, error)
                    if todo == 0 and slice_is_over(self):
                        self.note_last_batch(<PyObject *>failed)
        finally:
            self.batch_running = outer
            if self.unflushed_count:
                self.flush_watchers()
                self.metrics.last_reading = clock_ticks()
        return 0

    cdef int run_items(self, Py_ssize_t *todo, PyObject **running, bint repeat) except -1:
        """Run items until one raises. run_batches() then gets a reference to it in `running`, and goes on with the
        rest: so the usual item costs no try statement."""
        cdef ReadyQueue ready = self.ready
        cdef bint over
        while todo[0]:
            if FREE_THREADED:
                # If this counted first, another thread could empty the queue in between.
                running[0] = pop(ready)
            if running[0] == NULL if FREE_THREADED else queued(ready) == 0:
                # The loop was closed, or the program emptied the queue.
                todo[0] = 0
                self.metrics.last_reading = clock_ticks()
                break
            todo[0] -= 1
            if not FREE_THREADED:
                running[0] = pop(ready)
                if todo[0] >= PREFETCHED_FROM:
                    prefetch_item(ready)
            self.metrics.items += 1
            if ready.entered_task is not None and not isinstance(<object>running[0], Task):
                self.leave_current_task()
            if (self.run_and_time(<Runnable>running[0]) if self.timing else (<Runnable>running[0]).run()):
                self.metrics.cancelled += 1
            if todo[0]:
                retire(running[0])
                running[0] = NULL
                continue
            if self.unflushed_count:
                # Before the clock is read, so that one reading is enough. Raises only what ends the run of the loop.
                self.flush_watchers()
            over = slice_is_over(self)
            if over:
                self.note_last_batch(running[0])
            retire(running[0])
            running[0] = NULL
            if repeat and not self.stopping and not over and not self.must_poll() and self.run_once_is_original:
                todo[0] = queued(ready)
                metrics_begin_batch(&self.metrics, todo[0])
        return 0

    cdef int run_and_time(self, Runnable item) except -1:
        """Run an item and time it: `timing` has the reasons."""
        cdef loop_metrics *metrics = &self.metrics
        cdef int64_t cpu_began = -1
        cdef uint64_t began = metrics.last_reading if self.timing == TIMING_METRICS else begin_item(self, &cpu_began)
        cdef uint64_t passed
        cdef int cancelled = 0
        try:
            cancelled = run_in_debug_mode(self, item) if self.debug else item.run()
        finally:
            metrics.last_reading = clock_ticks()
            passed = metrics_passed(began, metrics.last_reading)
            if not cancelled and (passed > metrics.slice_ticks or self.timing & TIMING_HOOK):
                report_slow(self, item, passed, cpu_began, 1)
        return cancelled

    cdef int leave_current_task(self) except -1:
        """End the step of the task that ran last: see Task.run()."""
        cdef object task = self.ready.entered_task
        if task is not None:
            self.ready.entered_task = None
            leave_task(self, task)
        return 0

    cdef int note_last_batch(self, PyObject *last) except -1:
        """The batch that ended with item `last` is the last of its slice: it is time to poll."""
        cdef loop_metrics *metrics = &self.metrics
        cdef uint64_t passed = metrics_end_last_batch(metrics)
        if self.timing == 0 and passed > metrics.slice_ticks:
            report_slow(self, <object>last if metrics.batch_items == 1 else None, passed, -1, metrics.batch_items)
        return 0

    # -- an iteration: the end of a batch ------------------------------------------------------------------------------

    cdef int flush_later(self, Watcher watcher) except -1:
        """Call the watcher's flush() at the end of this batch, for it to send what was written to it."""
        if self.unflushed_count < PyList_GET_SIZE(self.unflushed):
            self.unflushed[self.unflushed_count] = watcher
        else:
            self.unflushed.append(watcher)
        self.unflushed_count += 1
        return 0

    cdef int flush_watchers(self) except -1:
        """At the end of a batch, send what was written to each transport in it, in one system call each.

        Not in a forked child: the parent sends what was written before the fork."""
        cdef bint own = self.poller is not None and not self.is_inherited_by_fork()
        cdef list watchers
        cdef Py_ssize_t count, index
        cdef Watcher watcher
        cdef object failure = None
        # A resume_writing() may write again, and so fill the other list, or even run the loop.
        while self.unflushed_count:
            watchers = self.unflushed
            count = self.unflushed_count
            self.unflushed = [] if self.spare_unflushed is None else self.spare_unflushed
            self.spare_unflushed = None
            self.unflushed_count = 0
            index = 0
            while index < count:
                try:
                    while index < count:
                        watcher = <Watcher>PyList_GET_ITEM(watchers, index)
                        watchers[index] = None
                        index += 1
                        if own:
                            watcher.flush()
                except BaseException as error:
                    # Raised when all have sent. An exception that ends the run of the loop takes precedence.
                    raised = self.report_flush(error)
                    if raised is not None and not isinstance(failure, (SystemExit, KeyboardInterrupt)):
                        failure = raised
            self.spare_unflushed = watchers
        if failure is not None:
            raise failure
        return 0

    cdef object report_flush(self, object error):
        """Report what flush() has raised, which is no callback's error. Returns an exception for flush_watchers() to
        raise, or None."""
        cdef object raised = error
        if not isinstance(error, (SystemExit, KeyboardInterrupt)):
            try:
                self.call_exception_handler(
                    {"message": "Exception while data was sent at the end of a turn", "exception": error}
                )
                raised = None
            except BaseException as failure:
                raised = failure
        return raised

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def time(self):
        """The loop's clock, in seconds: time.monotonic(). See loop.time()."""
        return clock_seconds()

    def call_soon(self, callback, *args, context=None):
        """Call `callback` in the next iteration, in the order of the calls. See loop.call_soon()."""
        return self.schedule_call(callback, args, context)

    cdef Handle schedule_call(self, object callback, tuple args, object context):
        cdef Handle handle
        if self.closed or self.debug:
            self.check_schedule(callback, "call_soon")
        handle = new_handle(callback, args, self, context)
        if self.debug:
            handle.record_source_traceback()
        push(self.ready, handle)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        """Call `callback` after `delay` seconds, never earlier. See loop.call_later()."""
        cdef TimerHandle handle
        cdef double now
        if delay is None:
            raise TypeError("delay must not be None")
        if self.closed or self.debug:
            self.check_schedule(callback, "call_at")
        if self.type_version != type_version_of(self):
            self.find_overrides()
        if self.time_replacement is not None or not self.call_at_is_original:
            # The sum has the type that the clock and the delay give it.
            return self.call_at(self.time() + delay, callback, *args, context=context)
        now = clock_seconds()
        handle = new_timer(now + delay_in_seconds(delay, now), callback, args, self, context)
        if not handle.deadline > now:
            self.poll_next = True
        if self.debug:
            handle.record_source_traceback()
        self.timers.push(handle)
        return handle

    def call_at(self, when, callback, *args, context=None):
        """Call `callback` when time() has reached `when`. See loop.call_at()."""
        cdef TimerHandle handle
        if when is None:
            raise TypeError("when cannot be None")
        if self.closed or self.debug:
            self.check_schedule(callback, "call_at")
        handle = new_timer(when, callback, args, self, context)
        if type(when) is not float:
            handle.given_deadline = when
        if not handle.deadline > self.slice_ends:
            # It may be due already.
            self.poll_next = True
        if self.debug:
            handle.record_source_traceback()
        self.timers.push(handle)
        return handle

    cdef int check_schedule(self, object callback, object method) except -1:
        self.check_open()
        if self.debug:
            self._check_thread()
            self._check_callback(callback, method)
        return 0

    def create_future(self):
        """A Future bound to this loop."""
        return Future(loop=self) if self.debug else new_future(self, self.ready)

    def create_task(self, coro, *, name=..., context=..., eager_start=..., **kwargs):
        """Run a coroutine as a Task. See loop.create_task()."""
        if eager_start is not ... and (self.task_factory is not None or self.debug or not passes_keywords_on):
            kwargs["eager_start"] = eager_start
        if self.task_factory is not None:
            # An explicit None too: since 3.14 a factory gets exactly the keywords that the caller gave.
            given = {key: value for key, value in (("name", name), ("context", context)) if value is not ...}
            return super().create_task(coro, **given, **kwargs)
        self.check_open()
        name = None if name is ... else name
        context = None if context is ... else context
        if kwargs and not passes_keywords_on:
            raise TypeError(f"create_task() got an unexpected keyword argument {next(iter(kwargs))!r}")
        if kwargs or self.debug:
            return Task(coro, loop=self, name=name, context=context, **kwargs)
        eager = eager_start is not ... and self.thread_id != 0 and eager_start
        return new_task(coro, self, self.ready, name, context, eager)

    # -- other threads -------------------------------------------------------------------------------------------------

    def call_soon_threadsafe(self, callback, *args, context=None):
        """call_soon() from another thread, or from a signal handler. See loop.call_soon_threadsafe()."""
        cdef Handle handle
        self.check_open()
        if self.debug:
            self._check_callback(callback, "call_soon_threadsafe")
        handle = new_threadsafe_handle(callback, args, self, context)
        if self.debug:
            handle.record_source_traceback()
        self.schedule_threadsafe(handle)
        return handle

    cdef int schedule_threadsafe(self, Handle handle) except -1:
        if FREE_THREADED:
            self.inbox.post(handle, self.ready)
        else:
            push(self.ready, handle)
            if self.runs_elsewhere():
                self.thread_called = True
                backoff_reset(&self.metrics.backoff)
        return self.wake()

    cdef int wake(self) except -1:
        """End the wait that the loop is in or about to begin. Only the first of a burst of calls costs anything."""
        # The version first: a thread that sees the new one also sees the overrides found with it.
        if (
            load_acquire_version(&self.type_version) != type_version_of(self)
            or not load_acquire_bint(&self.run_once_is_original)
        ):
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

    def _progress(self):
        """A number that changes with each callback or task step that is run; -1 while none is. A thread that watches
        this one may call it at any time."""
        # Plain reads: a thread that polls this may see a change one call later.
        return self.metrics.items if self.batch_running and not shared_peek(&self.asleep) else -1

    # -- replaced methods ----------------------------------------------------------------------------------------------

    def __setattr__(self, name, value):
        PyObject_GenericSetAttr(self, name, value)
        if name in REPLACEABLE:
            self.replaced_methods.add(name)
            self.find_overrides()

    def __delattr__(self, name):
        delete_attribute(self, name)
        if name in REPLACEABLE:
            self.replaced_methods.discard(name)
            self.find_overrides()

    cdef int find_overrides(self) except -1:
        """Find the methods that a program has replaced: a test clock for time(), a patched call_soon() or _run_once().

        The version tag of a class changes when the class or one of its bases is changed, so checking again costs one
        comparison. A class that was changed too often has no tag any more (0), and is searched each time."""
        cdef object cls = type(self)
        cdef set replaced = {name for name in REPLACEABLE if getattr(cls, name) is not getattr(LoopCore, name)}
        replaced |= self.replaced_methods
        self.time_replacement = self.time if "time" in replaced else None
        store_release_bint(&self.run_once_is_original, "_run_once" not in replaced)
        self.call_soon_is_original = "call_soon" not in replaced
        self.call_at_is_original = "call_at" not in replaced
        self.create_task_is_original = "create_task" not in replaced
        self.process_events_is_original = "_process_events" not in replaced
        store_release_version(&self.type_version, type_version_of(self) or NO_VERSION)
        self.update_direct_version()
        return 0

    cdef double current_time(self) except? -1:
        if self.type_version != type_version_of(self):
            self.find_overrides()
        if self.time_replacement is not None:
            return self.time_replacement()
        return clock_seconds()

    # -- metrics -------------------------------------------------------------------------------------------------------

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

    # -- callbacks of descriptors --------------------------------------------------------------------------------------

    def _add_reader(self, fd, callback, *args, context=None):
        backoff_reset(&self.metrics.backoff)
        if self.poller is None:
            return add_on_foreign_selector(super()._add_reader, fd, callback, args, context)
        return self.add_descriptor_callback(fd, POLLER_READ, callback, args, context)

    def _add_writer(self, fd, callback, *args, context=None):
        backoff_reset(&self.metrics.backoff)
        if self.poller is None:
            return add_on_foreign_selector(super()._add_writer, fd, callback, args, context)
        return self.add_descriptor_callback(fd, POLLER_WRITE, callback, args, context)

    def _remove_reader(self, fd):
        if FREE_THREADED:
            self.check_thread()
        if self.poller is None:
            return super()._remove_reader(fd)
        return remove_callback(self.poller, fd, POLLER_READ)

    def _remove_writer(self, fd):
        if FREE_THREADED:
            self.check_thread()
        if self.poller is None:
            return super()._remove_writer(fd)
        return remove_callback(self.poller, fd, POLLER_WRITE)

    cdef Handle add_descriptor_callback(self, object fd, int event, object callback, tuple args, object context):
        """Call `callback` at each `event`; it takes the place of an earlier callback for that, which is cancelled."""
        cdef Handle handle
        self.check_open()
        if FREE_THREADED:
            self.check_thread()
        handle = new_handle(callback, args, self, context)
        if self.debug:
            handle.record_source_traceback()
        return add_callback(self.poller, self.ready, fd, event, handle)

    # -- the buffer for receiving --------------------------------------------------------------------------------------

    cdef char *receive_buffer(self) except NULL:
        """READ_SIZE bytes to read into. Any Python code may have them overwritten."""
        if self.receive_bytes == NULL:
            self.receive_bytes = bytes_of_size(NULL, READ_SIZE)
            raise_malloc_threshold(8 * READ_SIZE)
        return PyBytes_AS_STRING(<object>self.receive_bytes)

    cdef object take_received(self, Py_ssize_t count):
        """The first `count` bytes of the buffer, as bytes. This cannot fail: see copy_or_take()."""
        return steal(copy_or_take(&self.receive_bytes, count))


cdef object call_in_loop_thread(LoopCore loop, object method, tuple arguments):
    """If runs_in_other_thread(): have the loop's thread call a transport's method. Errors are reported there."""
    if loop is not None:
        loop.call_soon_threadsafe(method, *arguments)


cdef object add_on_foreign_selector(object add, object fd, object callback, tuple args, object context):
    # asyncio's own methods take a context since 3.15.
    return add(fd, callback, *args) if context is None else add(fd, callback, *args, context=context)


cdef inline double delay_in_seconds(object delay, double now) except? -1:
    """The delay as a float. One that cannot be added to a float raises the error of that addition."""
    if type(delay) is float or type(delay) is int:
        return delay
    return <double>(now + delay) - now


cdef extern from "Python.h":
    int PyObject_GenericDelAttr "PyObject_GenericSetAttr" (object, object, PyObject *) except -1


cdef int delete_attribute(object owner, object name) except -1:
    return PyObject_GenericDelAttr(owner, name, NULL)


# -- create_task(coro), the way in which nearly all tasks are made -----------------------------------------------------

cdef bint can_create_plain_task(PyObject *loop) noexcept:
    cdef LoopCore core = <LoopCore>loop
    return core.task_factory is None and not core.closed and not core.debug


cdef object create_plain_task(object loop, object coro):
    return new_task(coro, loop, (<LoopCore>loop).ready, None, None, False)


fast_method_install(<PyTypeObject *>LoopCore, "create_task", can_create_plain_task, create_plain_task)


# -- the length of a clock tick ----------------------------------------------------------------------------------------

cdef uint64_t slice_ticks = clock_ticks_per_slice(SLICE)
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
