"""The other threads of a process with a loop under test: which work for the loop, and which could wake it later.

All that asyncio knows of a thread is its call_soon_threadsafe(). So each kind is recognized by the data of its library:
a worker of an executor by the concurrent.futures.Future that was passed to asyncio.wrap_future(), one of anyio by
anyio's list of idle workers. Of all others it is only known that they are alive.
"""

import asyncio
import concurrent.futures
import sys
import threading
from concurrent.futures import thread as pools
from typing import Any
from weakref import WeakSet

from hotloop._pure.system.clock import monotonic
from hotloop.instruments.threads import InstrumentThread, current_frames

_TIME_TO_START = 0.05
"""How long, in real seconds, a future may stay pending while its executor's threads seem idle: a thread needs a moment
from taking the work off its queue to marking the future as running."""

_WRAP_FUTURE = asyncio.futures.wrap_future.__code__


class Threads:
    """The other threads, from the view of one loop. To be made together with the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._older = WeakSet(threading.enumerate())
        # By the loop's future: the executor's future, and the time.monotonic() by which its work must have begun.
        self._wrapped: dict[asyncio.Future[Any], tuple[concurrent.futures.Future[Any], float]] = {}

    def note_future(self, future: asyncio.Future[Any], caller: Any) -> None:
        """Note a new future of the loop, if the `caller`, a frame, is asyncio.wrap_future()."""
        if caller.f_code is _WRAP_FUTURE:
            self._wrapped[future] = (caller.f_locals["future"], monotonic() + _TIME_TO_START)

    def at_work(self) -> bool:
        """True while a thread or process works on something for which the loop has a future."""
        for future in [future for future in list(self._wrapped) if future.done()]:
            self._wrapped.pop(future, None)
        # One that is done has still to tell the loop.
        if any(source.running() or source.done() for source, _ in list(self._wrapped.values())):
            return True
        return self.starting() or any(_anyio_works(thread, self._loop) for thread in threading.enumerate())

    def starting(self) -> bool:
        """True while such work may be in an executor's queue. Nothing tells the loop when it no longer is."""
        if not self._wrapped:
            return False
        queues = [queue for thread, queue in list(pools._threads_queues.items()) if thread.is_alive()]
        now = monotonic()
        return bool(queues) and any(
            not source.running() and not source.done() and (now < until or any(queue.qsize() for queue in queues))
            for source, until in list(self._wrapped.values())
        )

    def could_wake(self, *, younger: bool = False) -> bool:
        """True if there is a thread that might call call_soon_threadsafe() some day; with `younger`, only threads that
        are younger than the loop count.

        These do not count: idle threads of executors and of anyio; daemons that are older than the loop, which belong
        to the test runner and its like; pytest-timeout's timer, which is no daemon; and the threads of hotloop's
        instruments."""
        return any(
            not (thread in self._older and (younger or thread.daemon)) and not _is_idle(thread)
            for thread in threading.enumerate()
            if thread is not threading.current_thread() and not isinstance(thread, InstrumentThread)
        )


def _is_idle(thread: threading.Thread) -> bool:
    """True for a worker that waits for work, and for a timer that ends the test if it takes too long."""
    if isinstance(thread, threading.Timer):
        return getattr(thread.function, "__module__", None) == "pytest_timeout"
    idle = getattr(thread, "idle_workers", None)
    if _is_anyios(thread) and idle is not None:
        return thread in idle or getattr(thread, "stopping", False)
    queue = pools._threads_queues.get(thread)
    if queue is None:
        return _serves_idle_processes(thread)
    if queue.qsize():
        return False
    frame = current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is pools._worker.__code__


def _serves_idle_processes(thread: threading.Thread) -> bool:
    """True for the two threads of a ProcessPoolExecutor that has no work."""
    pool: Any = sys.modules.get("concurrent.futures.process")
    if pool is None:
        return False
    if not isinstance(thread, pool._ExecutorManagerThread):
        # The thread that writes to a queue of multiprocessing. If that fails, the work is pending for the other thread.
        return getattr(thread, "_target", None) is pool.mp.queues.Queue._feed
    # First, because outside the method below it may be about to tell of work that is no longer pending.
    if thread.pending_work_items:
        return False
    frame = current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code is not pool._ExecutorManagerThread.wait_result_broken_or_wakeup.__code__:
        frame = frame.f_back
    return frame is not None


def _anyio_works(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> bool:
    return _is_anyios(thread) and getattr(thread, "loop", None) is loop and not _is_idle(thread)


def _is_anyios(thread: threading.Thread) -> bool:
    return type(thread).__module__.startswith("anyio.")
