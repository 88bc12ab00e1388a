from libc.stdint cimport uint64_t

from hotloop._c.loop.task_creation cimport TaskCreation
from hotloop._c.poller.poller cimport poller_batch
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.runtime.locking cimport load_acquire_bint, published_size, shared_flag
from hotloop._c.scheduler.ready_queue cimport type_version_of


cdef class Polling(TaskCreation):
    cdef bint poll_next             # the next iteration polls, whatever pause is left; other threads set it, too
    cdef double slice_ends          # by the loop's clock: timers due later can wait for the next poll
    cdef bint batch_running         # callbacks run: transports may put off their writes to the end of the batch
    cdef bint thread_called         # another thread has called call_soon_threadsafe() since the last poll
    cdef uint64_t thread_called_at  # a reading of clock_ticks(), at the poll after that
    cdef uint64_t gil_released_at   # a reading of clock_ticks(), after a poll
    cdef uint64_t gil_held_ticks    # until a poll that cannot block releases the GIL again
    cdef shared_flag asleep         # 1 while the loop is in, or about to enter, a wait that wake() must end
    cdef bint program_selects       # that wait is the program's select(); other threads read it

    cdef int poll(self) except -1
    cdef int poll_selector(self, double wait) except -1
    cdef int expire_timers(self, uint64_t polled_before) except -1
    cdef int leave_current_task(self) except -1
    cdef int end_slice(self) noexcept
    cdef double wait_time(self) except? -2
    cdef int poll_natively(self, double wait) except -1
    cdef int poll_as_asyncio(self, double wait) except -1
    cdef bint gil_is_due(self) noexcept
    cdef double fall_asleep(self, double wait) noexcept
    cdef int end_poll(self, bint found) noexcept
    cdef int note_timer_lateness(self, double seconds, uint64_t polled_before) noexcept
    cdef int dispatch(self, PollerSelector poller, poller_batch *batch, int count) except -1
    cdef int dispatch_rest(
        self, PollerSelector poller, poller_batch *batch, int count, int *next, bint *foreign
    ) except -1
    cdef int dispatch_foreign(self, object entry, int happened) except -1
    cdef int report_and_rearm(self, PollerSelector poller, int fd, object error) except -1


cdef inline bint poll_requested(Polling loop) noexcept:
    return load_acquire_bint(&loop.poll_next)


cdef inline bint must_poll(Polling loop) noexcept:
    """Whether the next iteration polls, however recent the last poll is. A class that was changed may have another
    clock."""
    return (
        published_size(&loop.ready.count) == 0
        or poll_requested(loop)
        or loop.type_version != type_version_of(loop)
        or loop.time_replacement is not None
    )


cdef inline Py_ssize_t waiting_work(Polling loop) noexcept:
    """0: nothing but a poll comes before a transport's next callback, so it may make that one in this turn. If a
    callback changes the number, what it has queued comes first: a task that it wakes must run before the next call.
    (Setting a timer that is due soon sets `poll_next`.)"""
    return published_size(&loop.ready.count) << 2 | poll_requested(loop) << 1 | loop.stopping
