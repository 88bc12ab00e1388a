from libc.stdint cimport uint64_t

from hotloop._c.loop.state cimport LoopState
from hotloop._c.scheduler.ready_queue cimport Runnable


cdef int report_slow(LoopState loop, object item, uint64_t passed, Py_ssize_t count) except -1
cdef int run_in_debug_mode(LoopState loop, Runnable item) except -1
