"""The futures by which locks, events and queues make tasks wait."""

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.deque cimport (
    deque_append,
    deque_check,
    deque_delete,
    deque_install,
    deque_item,
    deque_new,
    deque_popleft,
    deque_size,
)
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport CANCELLED, PENDING, state_of

from asyncio import events
from collections import deque

deque_install(deque)

cdef object get_running_loop = events._get_running_loop


cdef object create_waiter(object owner, object bound_loop):
    """A future of the running loop. `bound_loop`: the loop that `owner` has been used with so far, or None.

    Raises RuntimeError if that is another loop."""
    cdef object loop = get_running_loop()
    if loop is None or loop is not bound_loop:
        loop = owner._get_loop()
    return loop.create_future()


cdef object add_waiter(object owner, object waiters, object bound_loop):
    """create_waiter(), and put it at the end of the owner's `_waiters`. A lock or semaphore for which nothing has
    waited yet has None in place of `waiters`, and gets a deque first."""
    cdef object waiter
    if waiters is None:
        owner._waiters = deque_new()
    waiter = create_waiter(owner, bound_loop)
    append_waiter(owner._waiters, waiter)
    return waiter


cdef int append_waiter(object waiters, object waiter) except -1:
    """Put a new waiter at the end of what the owner has by now: making the waiter may have run any code."""
    if deque_check(waiters):
        deque_append(waiters, waiter)
    else:
        waiters.append(waiter)
    return 0


cdef bint is_done(object waiter) except -1:
    if is_our_future(waiter):
        return state_of(<Future>waiter) != PENDING
    return waiter.done()


cdef int wake(object waiter, object result) except -1:
    """Set the result of a waiter that is not done."""
    if is_our_future(waiter):
        (<Future>waiter).finish(result)
    else:
        waiter.set_result(result)
    return 0


cdef int wake_first(object waiters) except -1:
    """Take waiters from the deque up to the first that is not done, and wake that one."""
    cdef object waiter
    while deque_size(waiters):
        waiter = deque_popleft(waiters)
        if not is_done(waiter):
            wake(waiter, None)
            break
    return 0


cdef bint are_all_cancelled(object waiters) except -1:
    """Whether every waiter in the deque was cancelled. Asks futures of other classes, which may run any code."""
    cdef object waiter
    if not deque_size(waiters):
        return True
    waiter = deque_item(waiters, 0)
    if is_our_future(waiter) and state_of(<Future>waiter) != CANCELLED:
        return False
    for waiter in waiters:
        if not waiter.cancelled():
            return False
    return True


cdef bint is_surely_waiting(object waiters) except -1:
    """Whether the first waiter in the deque is one of ours, and was not cancelled: known without running any code."""
    if not deque_size(waiters):
        return False
    cdef object waiter = deque_item(waiters, 0)
    return is_our_future(waiter) and state_of(<Future>waiter) != CANCELLED


cdef bint remove_waiter(object waiters, object waiter) except -1:
    """Remove a waiter from None or a deque of them; False if it is not there, or if an object before it may be compared
    by code of the program's."""
    cdef object found
    cdef Py_ssize_t index
    if waiters is not None and deque_size(waiters) > 0:
        # The first one in most cases. Deleting it by its index would rotate the deque.
        if deque_item(waiters, 0) is waiter:
            deque_popleft(waiters)
            return True
        for index in range(deque_size(waiters)):
            found = deque_item(waiters, index)
            if found is waiter:
                deque_delete(waiters, index)
                return True
            if not is_our_future(found):
                return False
    return False


cdef int fail_waiting(object owner, object waiter, object error) except -1:
    """The end of a wait that ended with an exception: raise it, and in any case remove the waiter."""
    try:
        raise_again(error)
    finally:
        owner._waiters.remove(waiter)
