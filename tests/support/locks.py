"""For tests of asyncio's locks: their kinds and states, and tasks that use them."""

import asyncio

from support.comparing import description

KINDS = ("Lock", "Semaphore", "BoundedSemaphore", "Condition")


async def cancelled(*tasks):
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def state(lock):
    inner = getattr(lock, "_lock", None)
    waiters = [(waiter.done(), waiter.cancelled()) for waiter in lock._waiters or ()]
    own = repr(lock).partition(" at ")[2].partition(" ")[2], getattr(lock, "_value", None), waiters
    return own if inner is None else (own, state(inner))


def without_addresses(found):
    """The texts of `found`, without what differs between two equal objects."""
    if isinstance(found, (list, tuple)):
        return [without_addresses(each) for each in found]
    text = str(found)
    return text.partition(" at 0x")[0] if " at 0x" in text else text


def outcome_of_throw(coroutine, error):
    try:
        return coroutine.send(None) if error is None else coroutine.throw(error)
    except BaseException as raised:
        return description(raised), raised is error, getattr(raised, "value", None)
