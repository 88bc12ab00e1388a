from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.poller cimport poller_batch
from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.scheduler.ready_queue cimport Handle, Runnable
from hotloop._c.scheduler.thread_inbox cimport shared_flag


cdef class LoopCore(LoopState):
    cdef object time_replacement    # a replacement of time(); None: time() is time.monotonic()
    cdef bint run_once_is_original  # _run_once() is not overridden; other threads read it
    cdef bint process_events_is_original  # _process_events() is not overridden
    cdef bint poll_next             # the next iteration polls, whatever pause is left
    cdef double slice_ends          # by the loop's clock: timers due later can wait for the next poll
    cdef bint thread_called         # another thread has called call_soon_threadsafe() since the last poll
    cdef uint64_t thread_called_at  # a reading of clock_ticks(), at the poll after that
    cdef uint64_t gil_released_at   # a reading of clock_ticks(), after a poll
    cdef uint64_t gil_held_ticks    # until a poll that cannot block releases the GIL again
    cdef shared_flag asleep         # 1 while the loop is in, or about to enter, a wait that wake() must end
    cdef bint batch_running               # callbacks run: transports may put off their writes to the end of the batch
    cdef set replaced_methods       # names of methods replaced on this loop object, by setting an attribute
    cdef bint call_at_is_original   # call_at() is not overridden
    cdef PyObject *receive_bytes    # a bytes object of READ_SIZE to read into, owned; NULL: none, see receive_buffer()
    cdef Py_ssize_t last_received   # bytes that the last sock_recv() returned
    cdef int registered_first       # connections still to be registered before their first read: see stream.pyx
    cdef list unflushed             # `unflushed_count` Watchers with data to send, and then None
    cdef Py_ssize_t unflushed_count  # without the None entries
    cdef list spare_unflushed       # the list that replaces `unflushed` while that is flushed; None: in use

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
    cdef bint gil_is_due(self) noexcept
    cdef int64_t fall_asleep(self, int64_t nanoseconds) noexcept
    cdef int poll_own_selector(self, int64_t nanoseconds) except -1
    cdef int poll_foreign_selector(self, int64_t nanoseconds) except -1
    cdef int dispatch(self, PollerSelector poller, poller_batch *batch, int count) except -1
    cdef int dispatch_rest(
        self, PollerSelector poller, poller_batch *batch, int count, int *next, bint *foreign
    ) except -1
    cdef int dispatch_foreign(self, object entry, int happened) except -1
    cdef int report_and_rearm(self, PollerSelector poller, int fd, object error) except -1
    cdef int wake(self) except -1
    cdef Handle schedule_call(self, object callback, tuple args, object context)
    cdef int check_schedule(self, object callback, object method) except -1
    cdef int run_until_stopped(self) except -1
    cdef int run_iteration(self, bint repeat) except -1
    cdef int flush_later(self, Watcher watcher) except -1
    cdef int flush_watchers(self) except -1
    cdef object report_flush(self, object error)
    cdef char *receive_buffer(self) except NULL
    cdef object take_received(self, Py_ssize_t count)
    cdef int run_batches(self, bint repeat) except -1
    cdef int run_items(self, Py_ssize_t *todo, PyObject **running, bint repeat) except -1
    cdef int run_and_time(self, Runnable item) except -1
    cdef int note_last_batch(self, PyObject *last) except -1
    cdef int schedule_threadsafe(self, Handle handle) except -1
    cdef Handle add_descriptor_callback(self, object fd, int event, object callback, tuple args, object context)


cdef inline bint runs_in_other_thread(LoopCore loop) noexcept:
    """True in another thread while the loop runs. `loop` is None for a transport that is no longer connected."""
    return loop is not None and loop.runs_elsewhere()


cdef object call_in_loop_thread(LoopCore loop, object method, tuple arguments)
