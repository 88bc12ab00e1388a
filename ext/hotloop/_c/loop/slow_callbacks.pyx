"""Callbacks and task steps that take long: the longest for loop.metrics(), the slow-callback hook, and debug mode."""

cimport cython
from libc.stdint cimport uint64_t

from hotloop._c.loop.state cimport METRICS_SLICES_TO_TIME, LoopState
from hotloop._c.scheduler.ready_queue cimport Handle, Runnable, run_reporting, unwrap

from asyncio import base_events

from hotloop._asyncio.describe_callbacks import describe

cdef extern from "system/clock.h":
    uint64_t clock_ticks()


cdef int report_slow(LoopState loop, object item, uint64_t passed, Py_ssize_t count) except -1:
    """An item took `passed` ticks. With `item` None `count` items did, and it is not known which of them was long.

    Raises only what ends the run of the loop: the caller would take any other exception for the item's."""
    cdef double nanoseconds = <double>passed * loop.metrics.nanoseconds_per_tick
    if nanoseconds > loop.metrics.longest:
        record_longest(loop, item, nanoseconds, count)
    if loop.slow_hook is not None and count == 1 and nanoseconds >= loop.slow_after:
        call_hook(loop, item, nanoseconds)
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


cdef int call_hook(LoopState loop, object item, double nanoseconds) except -1:
    try:
        loop.slow_hook(loop, nanoseconds * 1e-9, unwrap(item))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        # The hook reports the exceptions of the program's. This one is its own: it has no memory.
        pass
    # The hook's time is not the next item's.
    loop.metrics.last_reading = clock_ticks()
    return 0


cdef int run_in_debug_mode(LoopState loop, Runnable item) except -1:
    """Run an item in debug mode: log one that takes long. 1 if it was cancelled, and did not run."""
    cdef double began, took
    if item.is_cancelled():
        return 1
    loop._current_handle = item
    began = loop.time()
    try:
        # Reports an exception by itself, so that a slow item that fails is logged as slow, too.
        run_reporting(item, loop)
    finally:
        loop._current_handle = None
    took = loop.time() - began
    if took >= loop.slow_callback_duration:
        text = base_events._format_handle(item) if isinstance(item, Handle) else repr(item)
        base_events.logger.warning("Executing %s took %.3f seconds", text, took)
    return 0
