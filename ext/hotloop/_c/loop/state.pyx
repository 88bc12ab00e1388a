"""LoopState: a loop's attributes, under the names that asyncio gives them.

BaseEventLoop and its subclasses read and write attributes of the loop, and so do debuggers, test suites and packages
that run a loop themselves. All those attributes are here. One that the compiled code uses is a property; the others
keep whatever is set.
"""

cimport cython
from cpython.object cimport PyTypeObject, inquiry

from hotloop._c.poller.poller cimport fork_number
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    PyThread_get_thread_ident,
    load_acquire_bint,
    load_acquire_id,
    store_release_bint,
    store_release_id,
    wake_lock_acquire,
    wake_lock_release,
)
from hotloop._c.scheduler.ready_deque cimport ReadyDeque
from hotloop._c.scheduler.ready_queue cimport NO_VERSION, set_queue_closed
from hotloop._c.scheduler.timers cimport TimerQueue
from hotloop._c.system.address cimport AddressCache


cdef object handles_in(object queue):
    """What is in a queue that is put in place of the loop's. A subclass that has a queue of its own and runs it itself,
    as trio-asyncio's loop does, puts an object there that has only `clear()`, for close()."""
    return queue if hasattr(queue, "__iter__") else ()


@cython.no_gc_clear
cdef class LoopState:
    """The state that LoopCore works on. Its tp_clear is clear_loop()."""

    def __cinit__(self, *args, **kwargs):
        self.ready = ReadyDeque()
        self.timers = TimerQueue()
        self.addresses = AddressCache()
        self.type_version = NO_VERSION
        self.fork_number = fork_number()

    cdef bint is_inherited_by_fork(self) noexcept:
        """True in a forked child that has not run this loop: its connections, and the data written to them, belong to
        the parent."""
        return self.fork_number != fork_number()

    cdef int update_short_cuts(self) noexcept:
        """See may_queue_directly() and may_create_directly()."""
        self.ready.direct_version = self.type_version if self.call_soon_is_original and not self.debug else NO_VERSION
        self.ready.creates_plain_tasks = (
            self.create_task_is_original and not self.creation_replaced and self.task_factory is None
        )
        return 0

    # -- other threads -------------------------------------------------------------------------------------------------

    cdef int check_open(self) except -1:
        if load_acquire_bint(&self.closed):
            raise RuntimeError("Event loop is closed")
        return 0

    cdef bint runs_elsewhere(self) noexcept:
        """True while another thread runs the loop."""
        cdef unsigned long runner = load_acquire_id(&self.thread_id)
        return runner != 0 and runner != PyThread_get_thread_ident()

    cdef bint wake_poller(self) except -1:
        """End the current or next wait of hotloop's own poller; False if the loop has none. Does nothing on a closed
        loop."""
        if not FREE_THREADED:
            if self.poller is None:
                return False
            self.poller.wake()
            return True
        wake_lock_acquire(&self.waking)
        try:
            if self.closed:
                return True
            if self.poller is None:
                return False
            self.poller.wake()
            return True
        finally:
            wake_lock_release(&self.waking)

    cdef int set_closed(self, bint closed) noexcept:
        """Once this has returned, no other thread queues anything or wakes the poller."""
        wake_lock_acquire(&self.waking)
        store_release_bint(&self.closed, closed)
        wake_lock_release(&self.waking)
        set_queue_closed(self.ready, closed)
        return 0

    cdef int flush_writes(self) except -1:
        """Send what the running batch has written (unflushed.pyx), unless another thread runs the loop; and what
        callbacks of other loops have written, if one of them runs this loop. LoopCore's."""
        return 0

    # -- asyncio's attributes ------------------------------------------------------------------------------------------

    @property
    def _ready(self):
        # Code that runs the loop itself, maybe in a callback, looks here for anything to run before it waits.
        self.flush_writes()
        return self.ready

    @_ready.setter
    def _ready(self, handles):
        (<ReadyDeque>self.ready).replace(handles_in(handles), self.ready.count)

    @property
    def _scheduled(self):
        # A list made for the caller: changing it changes nothing. But a timer that the caller puts on `_ready`, as
        # nest_asyncio does with timers that are due, leaves the heap.
        return self.timers.in_order()

    @_scheduled.setter
    def _scheduled(self, handles):
        self.timers.replace(handles_in(handles))

    @property
    def _selector(self):
        with cython.critical_section(self):
            return self.selector

    @_selector.setter
    def _selector(self, selector):
        cdef PollerSelector poller = selector if isinstance(selector, PollerSelector) else None
        # Other threads may be reading them.
        with cython.critical_section(self):
            self.selector, selector = selector, self.selector
            self.poller, poller = poller, self.poller

    @property
    def _debug(self):
        return self.debug

    @_debug.setter
    def _debug(self, value):
        self.debug = bool(value)
        self.timing = self.timing & ~TIMING_DEBUG | (TIMING_DEBUG if self.debug else 0)
        self.update_short_cuts()

    @property
    def _closed(self):
        return self.closed

    @_closed.setter
    def _closed(self, value):
        try:
            if value:
                # Code that runs the loop itself may close it in a callback.
                self.flush_writes()
        finally:
            self.set_closed(bool(value))
            if value:
                self.timers.clear()

    @property
    def _stopping(self):
        return self.stopping

    @_stopping.setter
    def _stopping(self, value):
        self.stopping = bool(value)

    @property
    def _thread_id(self):
        return load_acquire_id(&self.thread_id) or None

    @_thread_id.setter
    def _thread_id(self, value):
        store_release_id(&self.thread_id, value or 0)

    # -- slow callbacks ------------------------------------------------------------------------------------------------

    def _set_slow_hook(self, hook, seconds):
        """Call `hook(loop, seconds, cpu_seconds, item)` right after each item that took `seconds` or longer; None: stop
        that. The processor time is None where it is not known."""
        cdef bint has_hook = hook is not None
        cdef double after = seconds * 1e9
        with cython.critical_section(self):
            self.slow_hook, hook = hook, self.slow_hook
            self.slow_after = after
            self.timing = self.timing & ~TIMING_HOOK | (TIMING_HOOK if has_hook else 0)


cdef int clear_loop(object loop) except -1:
    """The tp_clear. A loop that the garbage collector clears is closed, and keeps its queues, which have a tp_clear of
    their own: code that runs while a cycle is cleared may still find the loop and use it."""
    cdef LoopState self = loop
    self.set_closed(True)
    self.poller = None
    self.selector = self.task_factory = self.slow_hook = self.longest_item = self._name_threads = None
    self._csock = self._ssock = self._internal_fds = self._signal_handlers = self._watcher = None
    self._asyncgens = self._asyncgens_shutdown_called = self._old_agen_hooks = self._current_handle = None
    self._default_executor = self._executor_shutdown_called = self._exception_handler = None
    self._coroutine_origin_tracking_enabled = self._coroutine_origin_tracking_saved_depth = None
    self._transports = self._unix_server_sockets = self._timer_cancelled_count = None
    self.slow_callback_duration = self._clock_resolution = None
    return 0


# The tp_clear of the classes that are derived from it calls this one.
(<PyTypeObject *>LoopState).tp_clear = <inquiry>clear_loop
