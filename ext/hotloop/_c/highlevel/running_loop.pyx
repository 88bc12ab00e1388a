"""The running loop and its timers, as the compiled functions of asyncio use them: timeouts, sleep(), wait() and their
like. The loop may be any; what is hotloop's own has short cuts."""

from hotloop._c.scheduler.ready_queue cimport may_queue_directly
from hotloop._c.scheduler.timers cimport TimerHandle
from hotloop._c.tasks.task cimport Task

from asyncio import base_events, events

cdef object get_running_loop = events._get_running_loop
cdef object asyncio_timer_handle_cancelled = base_events.BaseEventLoop._timer_handle_cancelled


cdef object running_loop():
    """The running loop; None: none is running."""
    return get_running_loop()


cdef bint runs_on_hotloop(object loop, object task) noexcept:
    """Whether the loop, whose current task is `task`, is hotloop's own, and not in debug mode."""
    return (
        isinstance(task, Task)
        and (<Task>task).is_exact()
        and (<Task>task).loop is loop
        and (<Task>task).queue is not None
        and may_queue_directly((<Task>task).queue, loop)
    )


cdef bint is_debugging(object loop, object task) except -1:
    """Whether the loop, whose current task is `task`, is in debug mode. Its handles then say which line has made them:
    a line of asyncio's, so that its own function has to make them."""
    if runs_on_hotloop(loop, task):
        return False
    try:
        return bool(loop.get_debug())
    except Exception:
        pass
    return True


cdef int cancel_handle(object handle) except -1:
    """handle.cancel()"""
    if type(handle) is not TimerHandle:
        handle.cancel()
    elif (<TimerHandle>handle).timers is not None:
        (<TimerHandle>handle).withdraw()
        (<TimerHandle>handle).cancel_now()
    elif type((<TimerHandle>handle).loop)._timer_handle_cancelled is asyncio_timer_handle_cancelled:
        # Which does nothing for a timer that is not pending.
        (<TimerHandle>handle).cancel_now()
    else:
        handle.cancel()
    return 0
