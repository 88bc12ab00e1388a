"""What other threads have to do with a loop under test: which are at work for it, and which could wake it some day.

asyncio knows nothing of a thread but call_soon_threadsafe(). So each kind is known by what its library keeps: a worker
of an executor by the concurrent.futures.Future that asyncio.wrap_future() was given, one of anyio by anyio's list of
those that are idle. Of all others it is only known that they are alive.
"""

import asyncio
import concurrent.futures
import sys
import threading
from concurrent.futures import thread as pools
from time import monotonic
from typing import Any
from weakref import WeakSet

from hotloop.instruments.threads import InstrumentThread

_TIME_TO_START = 0.05
"""For how many real seconds a future that no executor works on yet may be that of an executor whose threads are idle: a
thread takes a moment from its queue to the future."""

_WRAP_FUTURE = asyncio.futures.wrap_future.__code__


class Threads:
    """The other threads, as a loop sees them that was made now."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._older = WeakSet(threading.enumerate())
        # By the loop's future: the executor's, and until when to wait for one to start; time.monotonic().
        self._wrapped: dict[asyncio.Future[Any], tuple[concurrent.futures.Future[Any], float]] = {}

    def made(self, future: asyncio.Future[Any], caller: Any) -> None:
        """Note a new future of the loop, if the frame that asked for it is asyncio.wrap_future()'s."""
        if caller.f_code is _WRAP_FUTURE:
            self._wrapped[future] = (caller.f_locals["future"], monotonic() + _TIME_TO_START)

    def at_work(self) -> bool:
        """True while a thread, or a process, is at work on something that a future of the loop stands for."""
        for future in [future for future in list(self._wrapped) if future.done()]:
            self._wrapped.pop(future, None)
        # One that is done is at work still, until it has told the loop.
        if any(source.running() or source.done() for source, _ in list(self._wrapped.values())):
            return True
        return self.starting() or any(_anyio_works(thread, self._loop) for thread in threading.enumerate())

    def starting(self) -> bool:
        """True while one of these may be in an executor's queue. Nothing tells the loop that it no longer is."""
        if not self._wrapped:
            return False
        queues = [queue for thread, queue in list(pools._threads_queues.items()) if thread.is_alive()]
        now = monotonic()
        return bool(queues) and any(
            not source.running() and not source.done() and (now < until or any(queue.qsize() for queue in queues))
            for source, until in list(self._wrapped.values())
        )

    def could_wake(self, *, younger: bool = False) -> bool:
        """True if there is a thread that might call call_soon_threadsafe() some day; with `younger`, one that is
        younger than the loop.

        Not an idle one of an executor or of anyio; nor a daemon that was there before the loop, which belongs to the
        test runner and its like; nor one of hotloop's instruments."""
        return any(
            not (thread in self._older and (younger or thread.daemon)) and not _is_idle(thread)
            for thread in threading.enumerate()
            if thread is not threading.current_thread() and not isinstance(thread, InstrumentThread)
        )


def _is_idle(thread: threading.Thread) -> bool:
    """True for a worker that waits to be given something."""
    idle = getattr(thread, "idle_workers", None)
    if _is_anyios(thread) and idle is not None:
        return thread in idle or getattr(thread, "stopping", False)
    queue = pools._threads_queues.get(thread)
    if queue is None or queue.qsize():
        return False
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is pools._worker.__code__


def _anyio_works(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> bool:
    return _is_anyios(thread) and getattr(thread, "loop", None) is loop and not _is_idle(thread)


def _is_anyios(thread: threading.Thread) -> bool:
    return type(thread).__module__.startswith("anyio.")
