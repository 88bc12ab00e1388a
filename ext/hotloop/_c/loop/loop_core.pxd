from cpython.object cimport PyObject

from hotloop._c.loop.polling cimport Polling
from hotloop._c.loop.unflushed cimport Unflushed
from hotloop._c.runtime.locking cimport FREE_THREADED
from hotloop._c.scheduler.handles cimport Handle


cdef class LoopCore(Polling):
    cdef PyObject *receive_bytes    # a bytes object of READ_SIZE to read into, owned; NULL: none, see receive_buffer()
    cdef Py_ssize_t last_received   # bytes that the last sock_recv() returned
    cdef Unflushed unflushed        # the transports that callbacks of this batch have written to

    cdef int begin_running(self) except -1
    cdef int end_running(self) except -1
    cdef int run_until_stopped(self) except -1
    cdef int run_iteration(self, bint repeat) except -1
    cdef int run_batches(self, bint repeat) except -1
    cdef int run_items(self, Py_ssize_t *todo, PyObject **running, bint repeat) except -1
    cdef int run_and_time(self, PyObject *running) except -1
    cdef int note_last_batch(self, PyObject *last) except -1
    cdef int begin_metrics(self) noexcept
    cdef int end_metrics(self) noexcept
    cdef Handle schedule_call(self, object callback, tuple args, object context)
    cdef int check_schedule(self, object callback, object method) except -1
    cdef int schedule_threadsafe(self, Handle handle) except -1
    cdef int wake(self) except -1
    cdef Handle add_descriptor_callback(self, object fd, int event, object callback, tuple args, object context)
    cdef char *receive_buffer(self) except NULL
    cdef object take_received(self, Py_ssize_t count)


cdef inline bint runs_in_other_thread(LoopCore loop) noexcept:
    """True in another thread while the loop runs. Never with the GIL: a call acts at once then, as under asyncio.
    `loop` is None for a transport that is no longer connected."""
    return FREE_THREADED and loop is not None and loop.runs_elsewhere()


cdef inline int refuse_other_threads(LoopCore loop) except -1:
    """RuntimeError if runs_in_other_thread(): for calls that another thread cannot hand over."""
    return raise_wrong_thread() if runs_in_other_thread(loop) else 0


cdef object call_in_loop_thread(LoopCore loop, object method, tuple arguments)
cdef int raise_wrong_thread() except -1
