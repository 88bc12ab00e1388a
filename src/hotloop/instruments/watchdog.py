"""The watchdog: one thread for the whole process, which looks at all watched objects and ends when there are none.

At exit, the interpreter waits a moment for its last reports. A forked child has no such thread and watches nothing, but
it may start watching.
"""

import atexit
import os
import threading
import weakref
from asyncio.log import logger
from time import monotonic
from typing import Protocol

from hotloop.instruments.threads import InstrumentThread

_SECONDS_TO_FINISH = 1.0
"""How long the interpreter's exit waits for a report to finish."""


class Watched(Protocol):
    """An object that the thread looks at."""

    interval: float
    """In seconds, from one look to the next."""

    def look(self, now: float, late: float) -> bool:
        """Called in the watchdog's thread. `now` is time.monotonic(); `late` is how many seconds too late the thread
        woke up because it could not run. Returns False to be watched no more.

        The first exception of an object is logged, and the object is watched on."""


class Watchdog:
    """Looks at each watched object when it is due."""

    def __init__(self) -> None:
        self._registered = False
        self._reset()

    def _reset(self) -> None:
        # Reentrant, because a signal handler may stop a watch while the same thread adds or stops one.
        self._changed = threading.Condition(threading.RLock())
        self._due: dict[Watched, float] = {}
        # Those whose look has raised an exception. Used by the thread only.
        self._failed: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._ending = False

    def add(self, watched: Watched) -> None:
        """Begin to watch an object. Raises RuntimeError if no thread can be started."""
        with self._changed:
            if not self._registered:
                self._registered = True
                atexit.register(self._finish)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=self._reset)
            self._due[watched] = monotonic() + watched.interval
            if self._thread is not None:
                self._changed.notify()
                return
            try:
                thread = InstrumentThread(self._run, "hotloop-watchdog")
                thread.start()
            except RuntimeError:
                del self._due[watched]
                raise
            self._thread = thread

    def hurry(self, watched: Watched) -> None:
        """Look at an object now, if it is still watched."""
        with self._changed:
            if watched in self._due:
                self._due[watched] = monotonic()
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                due, late = self._wait()
                ending = self._ending
            while due:
                watched = due.pop()
                if not self._look(watched, late):
                    with self._changed:
                        self._due.pop(watched, None)
                del watched  # the sleeping thread must not keep it alive
            if ending:
                return

    def _look(self, watched: Watched, late: float) -> bool:
        """Look at one object. Its exception, of a task's get_name() for instance, must not cost the other objects."""
        try:
            return watched.look(monotonic(), late)
        except BaseException:
            if watched not in self._failed:
                self._failed.add(watched)
                logger.exception("the watchdog could not look at an event loop")
            return True

    def _wait(self) -> tuple[list[Watched], float]:
        """Sleep until something is due. Returns what is due, and by how many seconds the thread overslept."""
        planned = min(self._due.values())
        timeout = planned - monotonic()
        if timeout > 0:
            self._changed.wait(min(timeout, threading.TIMEOUT_MAX))
        now = monotonic()
        due = [watched for watched, when in self._due.items() if when <= now]
        for watched in due:
            self._due[watched] = now + watched.interval
        # Without a sleep, the thread is late because of its own reports: that does not count.
        return due, max(now - planned, 0.0) if timeout > 0 else 0.0

    def _finish(self) -> None:
        """At exit: look at everything once more."""
        with self._changed:
            thread = self._thread
            for watched in self._due:
                self._due[watched] = 0.0
            self._ending = True
            self._changed.notify()
        if thread is not None:
            thread.join(_SECONDS_TO_FINISH)


WATCHDOG = Watchdog()
