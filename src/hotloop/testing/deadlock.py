"""When a loop under test has nothing to do and nothing can change that, and what to say of it."""

import asyncio
import threading
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hotloop.instruments.chains import summary

if TYPE_CHECKING:
    from hotloop.testing.clock import Clock


class DeadlockError(RuntimeError):
    """A loop of hotloop.testing would wait for ever: nothing is ready, no timer will be due, nothing could wake it.

    Also raised when `patience` comes to an end. The message has each task with the place where it waits."""


class Wakers:
    """The threads that might call call_soon_threadsafe() some day.

    Not those of executors, whose work holds the clock; nor daemon threads that were there before the loop, which
    belong to the test runner and its like.
    """

    def __init__(self) -> None:
        self._bystanders = WeakSet(thread for thread in threading.enumerate() if thread.daemon)
        self._executors: WeakSet[Any] = WeakSet()

    def add_executor(self, executor: object) -> None:
        """Threads of this one do nothing unless they are given something."""
        self._executors.add(executor)

    def __bool__(self) -> bool:
        workers = {thread for executor in self._executors for thread in getattr(executor, "_threads", ())}
        idle = workers | {threading.current_thread(), *self._bystanders}
        return any(thread not in idle for thread in threading.enumerate())


def describe(loop: asyncio.AbstractEventLoop, clock: "Clock", deadline: float, patience: float | None) -> str:
    """What a DeadlockError says: why there is nothing to wait for, and each task with the place where it waits.

    `deadline` is that of the next timer; `patience` in seconds if it came to an end, None if there was no need to
    wait."""
    if deadline == inf:
        reason = "no timer is pending"
    elif clock.frozen:
        reason = f"the clock is frozen at {loop.time():g} and the next timer is due at {deadline:g}"
    else:
        reason = f"the clock is held at {loop.time():g} and the next timer is due at {deadline:g}"
    if patience is None:
        reason += ", and nothing is there that could wake the loop"
    else:
        reason += f", and nothing has woken the loop for {patience:g} s"
    tasks = sorted(map(summary, asyncio.all_tasks(loop)))
    waiting = "\n".join(f"  {line}" for line in tasks) or "  no task"
    network = getattr(loop, "_network", None)
    held = [connection for connection in network.connections if connection._is_held()] if network else []
    waiting += "".join(f"\n  {connection!r}" for connection in held)
    return f"deadlock: {reason}. What waits:\n{waiting}"
