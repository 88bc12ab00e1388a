from hotloop._c.address cimport AddressCache
from hotloop._c.inbox cimport Inbox
from hotloop._c.ready cimport ReadyQueue
from hotloop._c.selector cimport PollerSelector
from hotloop._c.timers cimport TimerQueue


cdef class LoopState:
    cdef ReadyQueue ready
    cdef TimerQueue timers
    cdef object selector            # anything with the selectors API; None: closed, or not there yet
    cdef PollerSelector poller      # the same, if it is ours; else None
    cdef object thread_id           # of the thread that runs the loop, as threading.get_ident(); None: not running
    cdef object task_factory        # None: Task
    cdef bint schedules_itself      # call_soon() is not overridden
    cdef bint debug
    cdef bint closed
    cdef bint stopping              # end run_forever() after this iteration
    cdef AddressCache addresses     # of those whose datagrams have come
    cdef Inbox inbox               # what other threads want to be called, where there is no GIL

    # What BaseEventLoop and its subclasses set on the instance. Declared, as an instance without a __dict__ is what
    # the interpreter's method calls are fastest on.
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
