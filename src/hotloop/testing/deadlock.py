"""DeadlockError, for a loop under test that has nothing to do and that nothing can wake, and its message."""

import asyncio
from math import inf
from typing import TYPE_CHECKING

from hotloop.instruments.chains import summary

if TYPE_CHECKING:
    from hotloop.testing.clock import Clock


class DeadlockError(RuntimeError):
    """A loop of hotloop.testing would wait for ever: nothing is ready, no timer will be due, nothing could wake it.

    Also raised when `patience` runs out, and when the clock has jumped `max_jumps` times. The message lists each task
    with the place where it waits."""


def describe_wait(loop: asyncio.AbstractEventLoop, clock: "Clock", deadline: float, patience: float | None) -> str:
    """The message of a DeadlockError: why there is nothing to wait for, and which tasks wait.

    `deadline` is that of the next timer. `patience` is in seconds if it ran out, None if nothing could wake the loop.
    """
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
    return _describe(loop, reason)


def describe_jumps(loop: asyncio.AbstractEventLoop, jumps: int) -> str:
    """The message of a DeadlockError when the clock has only jumped from timer to timer."""
    reason = f"the clock has jumped {jumps:,} times in this run, to {loop.time():g}, which is max_jumps"
    return _describe(loop, reason)


def _describe(loop: asyncio.AbstractEventLoop, reason: str) -> str:
    """A message with `reason`, each task and the place where it waits."""
    tasks = sorted(map(summary, asyncio.all_tasks(loop)))
    waiting = "\n".join(f"  {line}" for line in tasks) or "  no task"
    network = getattr(loop, "_network", None)
    held = [connection for connection in network.connections if connection._is_held()] if network else []
    waiting += "".join(f"\n  {connection!r}" for connection in held)
    return f"deadlock: {reason}. What waits:\n{waiting}"
