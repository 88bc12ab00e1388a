from libc.stdint cimport int64_t, uint64_t

from hotloop._c.loop.state cimport LoopState
from hotloop._c.scheduler.ready_queue cimport Runnable


cdef uint64_t begin_item(LoopState loop, int64_t *cpu) noexcept
cdef int report_slow(LoopState loop, object item, uint64_t passed, int64_t cpu_began, Py_ssize_t count) except -1
cdef int run_in_debug_mode(LoopState loop, Runnable item) except -1
