from cpython.object cimport PyObject

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.watcher cimport Watcher


cdef class Unflushed:
    cdef PyObject **watchers        # owned references to `count` Watchers, from `first` on
    cdef Py_ssize_t first
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity        # of `watchers`
    cdef int batches                # of this loop that run in `thread`, each inside a callback of the one before
    cdef void *thread               # in whose list this is while `batches` is not 0
    cdef PyObject *outer            # borrowed; of the loop whose callback runs this loop, or NULL

    cdef int add(self, Watcher watcher) except -1
    cdef bint make_room(self) noexcept
    cdef PyObject *take(self) noexcept
    cdef int send_early(self) noexcept
    cdef int flush(self, LoopState loop) except -1


cdef bint enter_batch(Unflushed unflushed) noexcept
cdef void leave_batch(Unflushed unflushed) noexcept
cdef void send_all_early() noexcept
