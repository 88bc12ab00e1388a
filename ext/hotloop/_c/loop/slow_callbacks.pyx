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
    """An item took `passed` ticks. With `item` None `count` items did, and it is not known which of them was long."""
    cdef double nanoseconds = <double>passed * loop.metrics.nanoseconds_per_tick
    cdef object hook = loop.slow_hook
    if nanoseconds > loop.metrics.longest:
        if item is None:
            loop.metrics.slices_to_time = METRICS_SLICES_TO_TIME
        record = (int(nanoseconds), count, *describe(unwrap(item)))
        loop.metrics.longest = nanoseconds
        # Other threads may read it.
        with cython.critical_section(loop):
            loop.longest_item = record
    if hook is not None and count == 1 and nanoseconds >= loop.slow_after:
        hook(loop, nanoseconds * 1e-9, unwrap(item))
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
