from libc.stdint cimport int64_t, uint64_t

from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.runtime.locking cimport wake_lock
from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.scheduler.timers cimport TimerQueue
from hotloop._c.system.address cimport AddressCache


cdef extern from "loop/metrics.h":
    enum:
        METRICS_BUCKETS
        METRICS_TCP
        METRICS_STREAM
        METRICS_DATAGRAM
        METRICS_READ_PIPE
        METRICS_WRITE_PIPE
        METRICS_KINDS
        METRICS_SLICES_TO_TIME

    ctypedef struct metrics_histogram:
        uint64_t count
        double total
        double maximum
        uint64_t *buckets

    ctypedef struct poll_backoff:
        uint64_t polled_at
        uint64_t slice

    ctypedef struct loop_metrics:
        double nanoseconds_per_tick
        uint64_t slice_ticks
        uint64_t long_ticks
        uint64_t last_reading
        poll_backoff backoff
        uint64_t slice_began
        bint time_items
        int slices_to_time
        bint running
        bint waiting
        Py_ssize_t batch_items
        uint64_t items
        uint64_t cancelled
        uint64_t iterations
        uint64_t polls
        double busy
        double idle
        double longest
        int64_t cpu_reading
        uint64_t cpu_read_at
        metrics_histogram delay
        metrics_histogram lateness
        uint64_t bytes_received
        uint64_t receives
        uint64_t bytes_sent
        uint64_t sends
        Py_ssize_t *transports

    void metrics_received(loop_metrics *, Py_ssize_t count) noexcept
    void metrics_sent(loop_metrics *, Py_ssize_t count) noexcept
    void backoff_reset(poll_backoff *) noexcept
    bint backoff_is_over(const poll_backoff *, uint64_t now) noexcept


# Reasons to run items by LoopCore.run_and_time() instead of directly.
cdef enum:
    TIMING_METRICS = 1              # time each: the items of the previous slice took long
    TIMING_DEBUG = 2                # debug mode
    TIMING_HOOK = 4                 # a hook is called for those that take long


# Each attribute here that holds any object is also in clear_loop().
cdef class LoopState:
    cdef loop_metrics metrics
    cdef int timing                 # TIMING_* flags; 0: items are run directly
    cdef ReadyQueue ready
    cdef TimerQueue timers
    cdef object selector            # any object with the selectors API; None: closed, or not set yet
    cdef PollerSelector poller      # the same, if it is hotloop's own; else None
    cdef unsigned long thread_id    # threading.get_ident() of the loop's thread; 0: not running. Other threads read it
    cdef object task_factory        # None: Task
    cdef object slow_hook           # called for items that take `slow_after` or longer; None: no hook
    cdef double slow_after          # in nanoseconds
    cdef object longest_item        # the record of the longest item, see record_longest(); None: none was long
    cdef unsigned int type_version  # of the class when it was last searched for overrides; other threads read it
    cdef bint call_soon_is_original  # call_soon() is not overridden
    cdef bint create_task_is_original
    cdef bint creation_replaced  # a program has replaced BaseEventLoop.create_task(), as tracers do
    cdef bint debug
    cdef bint closed                # other threads read it
    cdef bint stopping              # end run_forever() after this iteration
    cdef AddressCache addresses     # where datagrams came from
    cdef wake_lock waking           # keeps the poller open while another thread wakes it

    # Attributes that BaseEventLoop and its subclasses set on the instance. Declared, because the interpreter calls
    # methods fastest on an instance without a __dict__.
    cdef public object slow_callback_duration
    cdef public object _asyncgens
    cdef public object _asyncgens_shutdown_called
    cdef public object _clock_resolution
    cdef public object _coroutine_origin_tracking_enabled
    cdef public object _coroutine_origin_tracking_saved_depth
    cdef public object _csock
    cdef public object _current_handle
    cdef public object _default_executor
    cdef public object _exception_handler
    cdef public object _executor_shutdown_called
    cdef public object _internal_fds
    cdef public object _old_agen_hooks
    cdef public object _signal_handlers
    cdef public object _ssock
    cdef public object _timer_cancelled_count
    cdef public object _transports
    cdef public object _unix_server_sockets
    cdef public object _watcher

    # A NameThreads, which hotloop.EventLoop sets: see _asyncio/name_resolver.py.
    cdef public object _name_threads

    cdef unsigned int fork_number  # of the process that made the loop or last polled with it

    cdef int update_short_cuts(self) noexcept
    cdef int check_open(self) except -1
    cdef int set_closed(self, bint closed) noexcept
    cdef bint is_inherited_by_fork(self) noexcept
    cdef bint runs_elsewhere(self) noexcept
    cdef bint wake_poller(self) except -1
    cdef int flush_writes(self) except -1
