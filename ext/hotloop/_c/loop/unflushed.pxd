from cpython.object cimport PyObject

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.watcher cimport Watcher


cdef class Unflushed:
    cdef Py_ssize_t count           # watchers on the list
    cdef list watchers              # `count` Watchers, and then None
    cdef list spare                 # the list that replaces `watchers` while those are flushed; None: in use

    cdef int add(self, Watcher watcher) except -1
    cdef int send_early(self) noexcept
    cdef int flush(self, LoopState loop) except -1


cdef PyObject *enter_batch(Unflushed unflushed) noexcept
cdef void leave_batch(PyObject *outer) noexcept
