"""Callbacks and task steps that take long: the longest for loop.metrics(), the slow-callback hook, and debug mode.

The hook gets the processor time of a slow item, too. To read the thread's CPU clock is a system call, too slow for each
item, and only a slow item shows afterwards that it was wanted. So an item takes the last reading for its beginning if
that is hardly older: by less than a hundredth of the threshold. What the thread did in between counts as the item's.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.state cimport METRICS_SLICES_TO_TIME, LoopState, loop_metrics
from hotloop._c.scheduler.handles cimport Handle, new_handle, run_reporting
from hotloop._c.scheduler.ready_queue cimport Runnable, unwrap
from hotloop._c.tasks.task cimport Task

from asyncio import base_events

from hotloop._asyncio.describe_callbacks import describe

cdef extern from "system/clock.h":
    uint64_t clock_ticks()
    int64_t clock_cpu_nanoseconds() noexcept

cdef extern from "loop/metrics.h":
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

# How old the reading of the CPU clock may be, as a fraction of the hook's threshold.
cdef double CPU_READING_AGE = 0.01


cdef uint64_t begin_item(LoopState loop, int64_t *cpu) noexcept:
    """Read the counter for an item that begins now. For the hook, `cpu` gets the CPU clock in nanoseconds; -1 if there
    is none."""
    cdef loop_metrics *metrics = &loop.metrics
    cdef uint64_t now = clock_ticks()
    cdef double age
    if loop.slow_hook is None:
        return now
    age = <double>metrics_passed(metrics.cpu_read_at, now) * metrics.nanoseconds_per_tick
    if metrics.cpu_reading < 0 or age >= loop.slow_after * CPU_READING_AGE:
        metrics.cpu_reading = clock_cpu_nanoseconds()
        # The time that this took is not the item's.
        metrics.cpu_read_at = now = clock_ticks()
    cpu[0] = metrics.cpu_reading
    return now


cdef int report_slow(LoopState loop, object item, uint64_t passed, int64_t cpu_began, Py_ssize_t count) except -1:
    """An item took `passed` ticks; `cpu_began` is what the CPU clock was before it, or -1. With `item` None
    `count` items did, and it is not known which of them was long.

    Raises what ends the run of the loop, and what a signal's handler raises that has waited for the item: the caller
    takes any exception for the item's, as asyncio does. The Python code below would swallow it."""
    cdef double nanoseconds = <double>passed * loop.metrics.nanoseconds_per_tick
    cdef bint longest = nanoseconds > loop.metrics.longest
    cdef bint slow = loop.slow_hook is not None and count == 1 and nanoseconds >= loop.slow_after
    if not longest and not slow:
        return 0
    try:
        PyErr_CheckSignals()
    finally:
        if longest:
            record_longest(loop, item, nanoseconds, count)
        if slow:
            call_hook(loop, item, nanoseconds, cpu_began)
    return 0


cdef int record_longest(LoopState loop, object item, double nanoseconds, Py_ssize_t count) except -1:
    if item is None:
        loop.metrics.slices_to_time = METRICS_SLICES_TO_TIME
    try:
        record = (int(nanoseconds), count, *describe(unwrap(item)))
        # Other threads may read it.
        with cython.critical_section(loop):
            loop.longest_item = record
        loop.metrics.longest = nanoseconds
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        # There is no memory for it: the next item that takes longer than the last one recorded gets a record.
        pass
    return 0


cdef int call_hook(LoopState loop, object item, double nanoseconds, int64_t cpu_began) except -1:
    try:
        seconds = nanoseconds * 1e-9
        cpu = cpu_seconds_since(cpu_began)
        if cpu is not None and cpu > seconds:
            # The first reading may be older than the item, and the second was taken after it had ended.
            cpu = seconds
        # Another thread may be setting another one.
        with cython.critical_section(loop):
            hook = loop.slow_hook
        if hook is not None:
            hook(loop, seconds, cpu, unwrap(item))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        # The hook itself reports what the program's callback raises. This exception is the hook's own, for lack of
        # memory.
        pass
    # The hook's time is not the next item's.
    loop.metrics.last_reading = clock_ticks()
    return 0


cdef int run_in_debug_mode(LoopState loop, Runnable item) except -1:
    """Run an item in debug mode: log one that takes long. 1 if it was cancelled, and did not run."""
    cdef double began, took
    cdef int64_t cpu_began = clock_cpu_nanoseconds()
    cdef object handle, text
    if item.is_cancelled():
        return 1
    handle = unwrap(item)
    try:
        set_current_handle(loop, as_handle(handle, loop))
        began = loop.time()
        # Reports an exception by itself, so that a slow item that fails is logged as slow, too.
        run_reporting(item, loop)
        took = loop.time() - began
        if took >= loop.slow_callback_duration:
            has_callback = handle is not item or isinstance(item, Handle)
            text = base_events._format_handle(handle) if has_callback else repr(item)
            # Tools read asyncio's text, so it stays as it is. The processor time is an attribute of the record.
            extra = {"hotloop_cpu_time": cpu_seconds_since(cpu_began)}
            base_events.logger.warning("Executing %s took %.3f seconds", text, took, extra=extra)
    finally:
        set_current_handle(loop, None)
    return 0


cdef int set_current_handle(LoopState loop, object handle) except -1:
    """The exception handler asks for it in any thread, for instance in one that frees a future."""
    with cython.critical_section(loop):
        loop._current_handle, handle = handle, loop._current_handle
    return 0


cdef object as_handle(object item, LoopState loop):
    """What asyncio would have as the current handle. For a task's step, queued before debug mode, it is a handle that
    does not know where it was made: the task itself knows that of the task."""
    if not isinstance(item, Task):
        return item
    try:
        return new_handle(item._run, (), loop, None)
    except MemoryError:
        # Nothing is known then, but the step must run.
        return None


cdef object cpu_seconds_since(int64_t began):
    """The processor time of this thread since its CPU clock was `began`; None if that is not known, -1."""
    cdef int64_t now = clock_cpu_nanoseconds() if began >= 0 else -1
    return None if now < 0 else <double>(now - began) * 1e-9
