from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from hotloop._c.loop.polling cimport LoopPolling
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.scheduler.ready_queue cimport Handle, Runnable


cdef class LoopCore(LoopPolling):
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
    cdef Handle schedule_call(self, object callback, tuple args, object context)
    cdef int check_schedule(self, object callback, object method) except -1
    cdef int run_until_stopped(self) except -1
    cdef int run_iteration(self, bint repeat) except -1
    cdef int flush_later(self, Watcher watcher) except -1
    cdef int flush_watchers(self) except -1
    cdef char *receive_buffer(self) except NULL
    cdef object take_received(self, Py_ssize_t count)
    cdef int run_batches(self, bint repeat) except -1
    cdef int run_items(self, Py_ssize_t *todo, PyObject **running, bint repeat) except -1
    cdef int run_and_time(self, Runnable item) except -1
    cdef int run_in_debug_mode(self, Runnable item) except -1
    cdef int note_last_batch(self, PyObject *last) except -1
    cdef int report_slow(self, object item, uint64_t passed, Py_ssize_t of) except -1
    cdef int leave_current_task(self) except -1
    cdef int schedule_threadsafe(self, Handle handle) except -1
    cdef Handle add_callback(self, object fd, int event, object callback, tuple args, object context)


cdef inline bint runs_in_other_thread(LoopCore loop) noexcept:
    """True in another thread while the loop runs. `loop` is None for a transport that is no longer connected."""
    return loop is not None and loop.runs_elsewhere()


cdef object call_in_loop_thread(LoopCore loop, object method, tuple arguments)
