"""How the result of an `await` leaves an iterator: as StopIteration(value), or by ending the iteration without one."""

from hotloop._asyncio import coroutine_results

cdef extern from "tasks/stop_iteration.h":
    bint is_traced() noexcept
    void stop_iteration_keep_reserve() noexcept
    void stop_iteration_set(object value) noexcept
    bint stop_iteration_has_context

stop_iteration_has_context = coroutine_results.stop_iteration_has_context
stop_iteration_keep_reserve()


cdef void set_stop_iteration(object value) noexcept:
    """Set the error indicator to StopIteration(value)."""
    stop_iteration_set(value)


cdef void end_iteration(object value) noexcept:
    """End an iteration with a value, before a tp_iternext returns NULL. NULL without an exception means None."""
    if value is not None or is_traced():
        stop_iteration_set(value)
