"""LoopCore: the event loop itself, that is the code that runs for every callback, timer and wake-up.

hotloop.EventLoop is NetworkCore (network/), which derives from this class, in front of asyncio.SelectorEventLoop.
NetworkCore adds transports, TLS and the sock_*() methods. Everything else (servers, most of connecting and of
subprocesses, executors, signals) is the running Python's.

In the order of this file:

- run_forever() repeats run_iteration() until stop() is called.
- An iteration begins with a poll, if one is due (polling.pyx). It queues callbacks for I/O and timers.
- run_batches() then runs the callbacks that are queued by now, one batch; run_items() is its inner loop. At the end of
  the batch what its callbacks wrote is sent (unflushed.pyx). Further batches follow until the next poll is due.
- call_soon(), call_later() and their like queue callbacks; wake() ends the loop's wait for other threads.

Its bases, from the first: the loop's attributes under asyncio's names (state.pyx), the methods that a program may
replace (replaceable_methods.pyx), futures and tasks (task_creation.pyx), and polling. Elsewhere: its counts and times
(metrics.h), slow callbacks and debug mode (slow_callbacks.pyx), the ready queue (scheduler/ready_queue.pxd) and timers
(scheduler/timers.pyx).

Threads: a loop's state belongs to the thread that runs the loop. See locking.h for what other threads may touch.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.clock_rate cimport SLICE, nanoseconds_in_a_tick, ticks_in_a_slice
from hotloop._c.loop.polling cimport Polling, must_poll
from hotloop._c.loop.replaceable_methods cimport clock_is_patched, declare_originals
from hotloop._c.loop.slow_callbacks cimport begin_item, report_slow, run_in_debug_mode
from hotloop._c.loop.state cimport TIMING_HOOK, TIMING_METRICS, backoff_is_over, backoff_reset, loop_metrics
from hotloop._c.loop.unflushed cimport Unflushed, enter_batch, leave_batch, send_all_early
from hotloop._c.poller.descriptor_callbacks cimport add_callback, remove_callback
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE
from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    PyThread_get_thread_ident,
    load_acquire_bint,
    load_acquire_id,
    load_acquire_version,
    shared_exchange,
    shared_fence,
    shared_get,
    shared_peek,
    shared_set,
    store_release_bint,
    store_release_id,
)
from hotloop._c.runtime.python_api cimport bytes_of_size
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.handles cimport (
    Handle,
    begin_caching_contexts,
    end_caching_contexts,
    new_handle,
    new_threadsafe_handle,
    report_exception,
    retire,
)
from hotloop._c.scheduler.ready_queue cimport (
    ReadyQueue,
    Runnable,
    pop,
    published_size,
    prefetch_item,
    push,
    queued,
    schedule,
    type_version_of,
)
from hotloop._c.scheduler.timers cimport TimerHandle, new_timer
from hotloop._c.system.receive cimport READ_SIZE
from hotloop._c.tasks.task cimport Task

import sys
import time
from asyncio import events

cdef extern from "system/clock.h":
    double clock_seconds()
    uint64_t clock_ticks()

cdef extern from "system/malloc_threshold.h":
    void raise_malloc_threshold(size_t size)

cdef extern from "loop/metrics.h":
    enum:
        METRICS_LONG_CALLBACK
    void metrics_begin(loop_metrics *, uint64_t now) noexcept
    void metrics_begin_batch(loop_metrics *, Py_ssize_t items) noexcept
    uint64_t metrics_end_last_batch(loop_metrics *) noexcept
    void metrics_end(loop_metrics *, uint64_t now) noexcept
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

cdef extern from "system/receive.h":
    PyObject *copy_or_take(PyObject **buffer, Py_ssize_t count) noexcept

# In a batch of this many items, they may no longer be in the processor's cache.
cdef Py_ssize_t PREFETCHED_FROM = 1000


cdef inline bint slice_is_over(LoopCore self) noexcept:
    """At the end of a batch: read the clock; True if it is time to poll."""
    cdef uint64_t now = clock_ticks()
    self.metrics.last_reading = now
    return backoff_is_over(&self.metrics.backoff, now)


@cython.no_gc_clear
cdef class LoopCore(Polling):
    """The scheduler of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    def __cinit__(self, *args, **kwargs):
        self.unflushed = Unflushed()

    def __dealloc__(self):
        Py_XDECREF(self.receive_bytes)

    # -- running -------------------------------------------------------------------------------------------------------

    def run_forever(self):
        """Run until stop() is called. See loop.run_forever()."""
        cdef object outer_hooks = self._old_agen_hooks
        cdef bint overridden
        if self.type_version != type_version_of(self):
            self.find_overrides()
        overridden = not self.run_forever_halves_are_original
        if overridden:
            self._run_forever_setup()
        else:
            self._check_closed()
            self._check_running()
        try:
            if not overridden:
                self.begin_running()
            self.begin_metrics()
            begin_caching_contexts()
            try:
                self.run_until_stopped()
            finally:
                self.end_metrics()
                try:
                    self.leave_current_task()
                finally:
                    end_caching_contexts()
        finally:
            # Not `overridden`: the program may have replaced the two halves meanwhile.
            if self.run_forever_halves_are_original:
                self.end_running()
            else:
                self._run_forever_cleanup()
            # The hooks of the run that this one was nested in.
            self._old_agen_hooks = outer_hooks

    # The two halves of run_forever(): subclasses override them, and code that drives the loop itself calls them.
    # asyncio has them since Python 3.13.

    def _run_forever_setup(self):
        self._check_closed()
        self._check_running()
        self.begin_running()

    def _run_forever_cleanup(self):
        self.end_running()

    cdef int begin_running(self) except -1:
        self._set_coroutine_origin_tracking(self.debug)
        self._old_agen_hooks = sys.get_asyncgen_hooks()
        store_release_id(&self.thread_id, PyThread_get_thread_ident())
        sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook)
        events._set_running_loop(self)
        return 0

    cdef int end_running(self) except -1:
        cdef object hooks = self._old_agen_hooks
        self.stopping = False
        store_release_id(&self.thread_id, 0)
        events._set_running_loop(None)
        self._set_coroutine_origin_tracking(False)
        if hooks is not None:
            self._old_agen_hooks = None
            sys.set_asyncgen_hooks(*hooks)
        return 0

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
            try:
                self.run_iteration(False)
            finally:
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
        if must_poll(self) or backoff_is_over(&self.metrics.backoff, clock_ticks()):
            # Before the poll, because a callback, of this loop or of another, may run this loop and wait for the answer
            # to what it has written. In a forked child, poll() makes the loop the child's: what was written before the
            # fork must have been left to the parent by then.
            self.flush_writes()
            self.poll()
        return self.run_batches(repeat)

    cdef int flush_writes(self) except -1:
        # None: the garbage collector shows the program a loop that is being made.
        if self.unflushed is not None and self.unflushed.count and not self.runs_elsewhere():
            self.unflushed.flush(self)
        # Of the loops whose callbacks run this one.
        send_all_early()
        return 0

    # -- running a batch -----------------------------------------------------------------------------------------------

    cdef int run_batches(self, bint repeat) except -1:
        """Run the items that are queued now; those queued meanwhile are the next batch. With `repeat`, go on with
        further batches until it is time to poll or to stop."""
        cdef Py_ssize_t todo = published_size(&self.ready.count)
        cdef PyObject *running = NULL
        cdef bint outer = self.batch_running
        cdef bint entered
        cdef Runnable failed
        self.batch_running = True
        entered = enter_batch(self.unflushed)
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
            try:
                if self.unflushed.count:
                    self.unflushed.flush(self)
                    self.metrics.last_reading = clock_ticks()
            finally:
                if entered:
                    leave_batch(self.unflushed)
        return 0

    cdef int run_items(self, Py_ssize_t *todo, PyObject **running, bint repeat) except -1:
        """Run items until one raises. run_batches() then gets a reference to it in `running`, and goes on with the
        rest: so the usual item costs no try statement."""
        cdef ReadyQueue ready = self.ready
        cdef bint over
        while todo[0]:
            running[0] = pop(ready)
            if running[0] == NULL:
                # The loop was closed, or the program emptied the queue.
                todo[0] = 0
                self.metrics.last_reading = clock_ticks()
                break
            todo[0] -= 1
            if not FREE_THREADED and todo[0] >= PREFETCHED_FROM:
                prefetch_item(ready)
            self.metrics.items += 1
            if ready.entered_task is not None and not isinstance(<object>running[0], Task):
                self.leave_current_task()
            if (self.run_and_time(running[0]) if self.timing else (<Runnable>running[0]).run()):
                self.metrics.cancelled += 1
            if todo[0]:
                retire(running[0])
                running[0] = NULL
                continue
            if self.unflushed.count:
                # Before the clock is read, so that one reading is enough. Raises only what ends the run of the loop.
                self.unflushed.flush(self)
            over = slice_is_over(self)
            if over:
                self.note_last_batch(running[0])
            retire(running[0])
            running[0] = NULL
            if repeat and not self.stopping and not over and not must_poll(self) and self.run_once_is_original:
                todo[0] = queued(ready)
                metrics_begin_batch(&self.metrics, todo[0])
        return 0

    cdef int run_and_time(self, PyObject *running) except -1:
        """Run an item and time it: `timing` has the reasons."""
        cdef loop_metrics *metrics = &self.metrics
        cdef int64_t cpu_began = -1
        cdef uint64_t began = metrics.last_reading if self.timing == TIMING_METRICS else begin_item(self, &cpu_began)
        cdef uint64_t passed
        cdef int cancelled = 0
        try:
            cancelled = run_in_debug_mode(self, <Runnable>running) if self.debug else (<Runnable>running).run()
        finally:
            metrics.last_reading = clock_ticks()
            passed = metrics_passed(began, metrics.last_reading)
            if not cancelled and (passed > metrics.slice_ticks or self.timing & TIMING_HOOK):
                report_slow(self, <object>running, passed, cpu_began, 1)
        return cancelled

    cdef int note_last_batch(self, PyObject *last) except -1:
        """The batch that ended with item `last` is the last of its slice: it is time to poll."""
        cdef loop_metrics *metrics = &self.metrics
        cdef uint64_t passed = metrics_end_last_batch(metrics)
        if self.timing == 0 and passed > metrics.slice_ticks:
            report_slow(self, <object>last if metrics.batch_items == 1 else None, passed, -1, metrics.batch_items)
        return 0

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def time(self):
        """The loop's clock, in seconds: time.monotonic(). See loop.time()."""
        return time.monotonic() if clock_is_patched() else clock_seconds()

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
        if self.time_replacement is not None or not self.call_at_is_original or clock_is_patched():
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
        schedule(self.ready, handle)
        if self.runs_elsewhere():
            store_release_bint(&self.thread_called, True)
            store_release_bint(&self.poll_next, True)
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
            return 0
        shared_fence()
        if shared_get(&self.asleep) and shared_exchange(&self.asleep, 0):
            try:
                self._write_to_self()
            except BaseException:
                shared_set(&self.asleep, 1)
                raise
        return 0

    def _write_to_self(self):
        try:
            # A replaced select() may call the original more than once. That must report the wake-up each time, until
            # the loop has handled it, so it comes by a descriptor in asyncio's way.
            if not load_acquire_bint(&self.program_selects) and self.wake_poller():
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

    # -- metrics -------------------------------------------------------------------------------------------------------

    cdef int begin_metrics(self) noexcept:
        """The loop begins to run. Its first iteration polls: a program may run a single one just for its I/O."""
        cdef uint64_t now = clock_ticks()
        self.metrics.nanoseconds_per_tick = nanoseconds_in_a_tick()
        self.metrics.slice_ticks = ticks_in_a_slice()
        self.metrics.long_ticks = METRICS_LONG_CALLBACK * self.metrics.slice_ticks // SLICE
        self.metrics.backoff.polled_at = now
        self.metrics.backoff.slice = self.metrics.slice_ticks
        backoff_reset(&self.metrics.backoff)
        metrics_begin(&self.metrics, now)
        return 0

    cdef int end_metrics(self) noexcept:
        """The loop stops running."""
        metrics_end(&self.metrics, clock_ticks())
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
        refuse_other_threads(self)
        if self.poller is None:
            return super()._remove_reader(fd)
        return remove_callback(self.poller, fd, POLLER_READ)

    def _remove_writer(self, fd):
        refuse_other_threads(self)
        if self.poller is None:
            return super()._remove_writer(fd)
        return remove_callback(self.poller, fd, POLLER_WRITE)

    cdef Handle add_descriptor_callback(self, object fd, int event, object callback, tuple args, object context):
        """Call `callback` at each `event`; it takes the place of an earlier callback for that, which is cancelled."""
        # Kept, because making the handle may run the garbage collector, and thus code that closes the loop.
        cdef PollerSelector poller = self.poller
        cdef Handle handle
        self.check_open()
        refuse_other_threads(self)
        handle = new_handle(callback, args, self, context)
        if self.debug:
            handle.record_source_traceback()
        return add_callback(poller, self.ready, fd, event, handle)

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
    """Have the loop's thread call a transport's method; the caller has found runs_in_other_thread(). An error goes to
    the exception handler."""
    if loop is not None:
        loop.call_soon_threadsafe(method, *arguments)


cdef int raise_wrong_thread() except -1:
    raise RuntimeError("Non-thread-safe operation invoked on an event loop other than the current one")


cdef object add_on_foreign_selector(object add, object fd, object callback, tuple args, object context):
    # asyncio's own methods take a context since 3.15.
    return add(fd, callback, *args) if context is None else add(fd, callback, *args, context=context)


cdef inline double delay_in_seconds(object delay, double now) except? -1:
    """The delay as a float. One that cannot be added to a float raises the error of that addition."""
    if type(delay) is float or type(delay) is int:
        return delay
    return <double>(now + delay) - now


declare_originals(LoopCore)
# Cython makes none for a no_gc_clear class, and the interpreter lets a class that is traversed inherit none.
(<PyTypeObject *>LoopCore).tp_clear = (<PyTypeObject *>Polling).tp_clear
