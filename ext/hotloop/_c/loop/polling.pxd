from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.selector cimport PollerSelector, poller_batch
from hotloop._c.scheduler.thread_inbox cimport shared_flag

cdef class LoopPolling(LoopState):
    cdef object time_replacement    # a replacement of time(); None: time() is time.monotonic()
    cdef bint run_once_is_original  # _run_once() is not overridden; other threads read it
    cdef bint process_events_is_original  # _process_events() is not overridden
    cdef bint poll_next             # the next iteration polls, whatever pause is left
    cdef double slice_ends          # by the loop's clock: timers due later can wait for the next poll
    cdef unsigned int polls_with_gil  # since the GIL was last released in one
    cdef shared_flag asleep         # 1 while the loop is in, or about to enter, a wait that wake() must end
    cdef bint in_turn               # callbacks run: transports may put off their writes to the end of the batch

    cdef int find_overrides(self) except -1
    cdef double current_time(self) except? -1
    cdef int leave_current_task(self) except -1
    cdef bint must_poll(self) noexcept
    cdef bint poll_is_due(self) noexcept
    cdef int begin_metrics(self) noexcept
    cdef int end_metrics(self) noexcept
    cdef int note_timer_lateness(self, double seconds, uint64_t polled_before) noexcept
    cdef int end_poll(self, bint found) noexcept
    cdef int poll(self) except -1
    cdef int64_t wait_time(self) except? -2
    cdef int64_t fall_asleep(self, int64_t nanoseconds) noexcept
    cdef int poll_own_selector(self, int64_t nanoseconds) except -1
    cdef int poll_foreign_selector(self, int64_t nanoseconds) except -1
    cdef int dispatch(self, PollerSelector poller, poller_batch *batch, int count) except -1
    cdef int dispatch_rest(
        self, PollerSelector poller, poller_batch *batch, int count, int *next, bint *foreign
    ) except -1
    cdef int report_and_repeat(self, PollerSelector poller, int fd, object error) except -1
    cdef int wake(self) except -1
