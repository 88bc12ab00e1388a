"""The raw numbers of loop.metrics(), and the counts of watched descriptors."""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint64_t

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.loop.state cimport METRICS_BUCKETS, METRICS_KINDS, loop_metrics, metrics_histogram
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.scheduler.ready_queue cimport queued
from hotloop._c.transports.base cimport Transport

from hotloop._asyncio.describe_callbacks import kind_of_watcher

cdef extern from "system/clock.h":
    uint64_t clock_ticks()

cdef extern from "loop/metrics.h":
    uint64_t metrics_passed(uint64_t start, uint64_t end) noexcept

# The names of the METRICS_ kinds of transports.
cdef tuple KINDS = (None, "tcp", "stream", "datagram", "read_pipe", "write_pipe")


cdef dict collect_metrics(LoopCore loop):
    """The fields of hotloop.Metrics that come from the loop itself, by name."""
    cdef loop_metrics *metrics = &loop.metrics
    cdef uint64_t now = clock_ticks()
    cdef double busy = metrics.busy, idle = metrics.idle
    with cython.critical_section(loop):
        longest = loop.longest_item
    if metrics.waiting:
        idle += <double>metrics_passed(metrics.last_reading, now) * metrics.nanoseconds_per_tick
    elif metrics.running:
        busy += <double>metrics_passed(metrics.slice_began, now) * metrics.nanoseconds_per_tick
    return {
        "iterations": metrics.iterations,
        "polls": metrics.polls,
        "callbacks": metrics.items - metrics.cancelled,
        "task_steps": loop.ready.steps,
        "busy_ns": int(busy),
        "idle_ns": int(idle),
        "scheduling_delay": histogram_fields(&metrics.delay),
        "timer_lateness": histogram_fields(&metrics.lateness),
        "longest_callback": longest,
        "ready": queued(loop.ready),
        "timers": loop.timers.heap.live,
        "transports": {KINDS[kind]: metrics.transports[kind] for kind in range(1, METRICS_KINDS)},
        "bytes_received": metrics.bytes_received,
        "receives": metrics.receives,
        "bytes_sent": metrics.bytes_sent,
        "sends": metrics.sends,
    }


cdef tuple histogram_fields(const metrics_histogram *histogram):
    cdef list buckets = []
    for index in range(METRICS_BUCKETS):
        buckets.append(histogram.buckets[index])
    return (histogram.count, int(histogram.total), int(histogram.maximum), tuple(buckets))


cdef dict count_watched(LoopCore loop):
    """How many descriptors of each kind hotloop's own selector watches; None: the loop has another one, or none."""
    cdef dict found = {}
    cdef PollerSelector poller
    cdef list entries
    cdef Py_ssize_t index
    cdef Py_ssize_t transports = 0
    with cython.critical_section(loop):
        poller = loop.poller
    if poller is None:
        return None
    # A copy, because data() and kind_of_watcher() may run any code.
    with cython.critical_section(poller):
        entries = list(poller.entries)
    for index in range(PyList_GET_SIZE(entries)):
        entry = <object>PyList_GET_ITEM(entries, index)
        if entry is None:
            continue
        if isinstance(entry, Transport):
            transports += 1
        else:
            kind = kind_of_watcher((<Watcher>entry).data() if isinstance(entry, Watcher) else entry.data)
            if kind is not None:
                found[kind] = found.get(kind, 0) + 1
    if transports:
        found["transport"] = found.get("transport", 0) + transports
    return found
