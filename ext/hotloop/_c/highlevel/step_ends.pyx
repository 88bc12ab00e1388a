"""How a step function ends a step when its coroutine has no result yet: it awaits something, lets an iteration pass, or
leaves the rest to asyncio's own function. For each there is a function here, whose result the step function returns.
"""

from hotloop._c.highlevel.awaiting cimport awaitable_iterator, raise_again
from hotloop._c.highlevel.coroutine cimport BARE_YIELD, DELEGATED, FAILED, Coroutine, awaited
from hotloop._c.tasks.future cimport Future

cdef extern from "highlevel/await_slots.h":
    int origin_tracking_depth() noexcept


cdef object await_object(Coroutine coroutine, object awaitable):
    """Begin to await. A Future needs no iterator.

    If the object cannot be awaited, the next step follows at once and gets the exception: for the handlers around an
    `await`, it has failed. So whatever that step relies on must be in place before this is called."""
    if isinstance(awaitable, Future) and (<Future>awaitable).is_exact() and (<Future>awaitable).loop is not None:
        coroutine.awaiting = awaitable
    elif type(awaitable) is Coroutine:
        coroutine.awaiting = awaited(<Coroutine>awaitable)
    else:
        await_iterator(coroutine, awaitable)
    return None


cdef int await_iterator(Coroutine coroutine, object awaitable) except -1:
    try:
        coroutine.awaiting = awaitable_iterator(awaitable)
    except BaseException as error:
        coroutine.failure = error
        coroutine.awaiting = FAILED
    return 0


cdef object yield_bare(Coroutine coroutine):
    """Let one iteration of the loop pass, as a `yield` without a value does."""
    coroutine.awaiting = BARE_YIELD
    return None


cdef bint may_merge() noexcept:
    """Whether await_merged() may be called: no coroutine is to know where it was created."""
    return origin_tracking_depth() == 0


cdef object await_merged(Coroutine coroutine, int position, object owner, object waiter):
    """Begin to await a coroutine that awaits `waiter` already, without making it; only if may_merge(). The next step
    does what that coroutine would do then, and its own work.

    The coroutine that is not made is of the operation's `inner` one, has this owner and the waiter as its `extra`, and
    is at its first await; `position` is the await of this coroutine. A tool that asks what is awaited gets it: see
    Coroutine.unmerge()."""
    coroutine.argument = owner
    coroutine.extra = waiter
    coroutine.position = DELEGATED - position
    return await_object(coroutine, waiter)


cdef object delegate(Coroutine coroutine, object asyncio_coroutine):
    """Leave the rest to a coroutine of asyncio's own function."""
    coroutine.position = DELEGATED
    coroutine.awaiting = asyncio_coroutine
    return None


cdef object delegated(Coroutine coroutine, object outcome, object error):
    """The step after delegate(), which a step function tells by the negative `position`."""
    if error is not None:
        raise_again(error)
    return outcome
