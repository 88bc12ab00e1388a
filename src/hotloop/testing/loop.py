"""The event loop for tests: hotloop's own, with an iteration that moves its clock instead of waiting.

An iteration first makes sure that there is something to run (VirtualTime._wait()). Then the loop's own iteration polls,
without waiting because something is queued, and runs the batch. So callbacks, tasks and transports work as they do
outside tests.

Waiting takes these steps: look for I/O; if something outside the loop holds the clock, sleep in real time; if a watched
socket may have bytes on their way, or another thread could wake the loop, give them `io_grace`; go to the next
deadline; raise DeadlockError if there is none.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from contextvars import Context
from heapq import heappop
from math import inf
from selectors import BaseSelector
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import base_events
from hotloop._pure.system.clock import monotonic
from hotloop.loop import EventLoopWithCore as _EventLoop
from hotloop.testing.clock import Clock, Timers
from hotloop.testing.deadlock import DeadlockError, describe_jumps, describe_wait
from hotloop.testing.networked import Networked
from hotloop.testing.number_checks import check_number, check_seconds
from hotloop.testing.shuffle import Pulse, Shuffler
from hotloop.testing.threads import Threads

IO_GRACE = 0.002
"""The default of `io_grace`, in seconds. As a rule, loopback delivers within the system call that sends."""

MAX_JUMPS = 1_000_000
"""The default of `max_jumps`; so many jumps take some ten seconds."""

_RECHECK = 0.05
"""How often to check, in seconds, whether threads are left that could wake a loop which waits for nothing else."""

_LOCAL = {getattr(socket, "AF_UNIX", None)}
"""The families of sockets whose data has arrived when the call that sends it returns."""


class VirtualTime(Networked):
    """The mixin that hotloop.testing.EventLoop adds in front of hotloop.EventLoop."""

    def __init__(
        self,
        selector: BaseSelector | None = None,
        *,
        start: float = 0.0,
        shuffle: int | str | None = None,
        relax: Collection[str] = (),
        io_grace: float = IO_GRACE,
        patience: float | None = None,
        max_jumps: int | None = MAX_JUMPS,
    ) -> None:
        try:
            _check(start, shuffle, relax, io_grace, patience, max_jumps)
        except BaseException:
            # __del__() must not call close() on it, which expects a complete loop.
            self._closed = True
            raise
        self.clock = Clock(self, start)
        self._shuffler = None if shuffle is None else Shuffler(shuffle, relax)
        self._io_grace = io_grace
        self._patience = patience
        self._deadlines = Timers()
        self._max_jumps = max_jumps
        self._threads = Threads(self)
        self._posted = False  # call_soon_threadsafe() was called since the last iteration began
        self._slept = 0.0  # real seconds that this iteration has waited for something that may never come
        self._pulse = Pulse()
        # The transports of subprocesses that hold the clock, and of those that ended before they could hold it.
        self._children: set[Any] = set()
        super().__init__(selector)
        if self._shuffler is not None:
            # Only if needed, because a replaced call_soon() makes each task step slower.
            self.call_soon = self._call_soon_noted

    def time(self) -> float:
        """The clock's time, in seconds. See hotloop.testing.Clock."""
        return self.clock.time()

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See loop.call_at(). ValueError if `when` is NaN."""
        if when is not None and when != when:
            raise ValueError("a time cannot be NaN")
        timer: asyncio.TimerHandle = super().call_at(when, callback, *args, context=context)
        _forget_caller(timer)
        self._deadlines.add(timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See loop.call_later(). ValueError if `delay` is NaN."""
        if delay is None:
            raise TypeError("delay must not be None")
        timer = self.call_at(self.time() + delay, callback, *args, context=context)
        _forget_caller(timer)
        return timer

    def _call_soon_noted(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle: asyncio.Handle = super().call_soon(callback, *args, context=context)
        _forget_caller(handle)
        self._shuffler.note_call(handle, callback, args)  # type: ignore[union-attr]
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See loop.call_soon_threadsafe()."""
        handle: asyncio.Handle = super().call_soon_threadsafe(callback, *args, context=context)
        _forget_caller(handle)
        # In this order. The loop may be asleep in _select(), of which the method of the superclass does not know.
        self._posted = True
        self._write_to_self()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See loop.create_future(). If the future stands for an executor's work, the work holds the clock."""
        future: asyncio.Future[Any] = super().create_future()
        _forget_caller(future)
        self._threads.note_future(future, sys._getframe(1))
        return future

    # -- running -------------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """See loop.run_forever(). DeadlockError when the clock has jumped `max_jumps` times."""
        self.clock.jumps = 0
        super().run_forever()

    def run_until_complete(self, future: Any) -> Any:
        """See loop.run_until_complete(). With a seed, its exceptions have a note with the seed."""
        try:
            return super().run_until_complete(future)
        except BaseException as error:
            if self._shuffler is not None:
                self._shuffler.add_note(error)
            raise

    def _run_once(self) -> None:
        self._slept = 0.0
        self._wait()
        self._posted = False
        ready = self._ready
        if self._shuffler is not None:
            self._shuffler.deal(ready, self._take_due())
        if not ready:
            # A timer is due, or stop() was called. The iteration must not sleep.
            ready.append(self._pulse)
        super()._run_once()

    def _wait(self) -> None:
        """Return when there is something to run."""
        clock = self.clock
        while not self._has_work():
            self._select(0)
            if self._has_work():
                return
            if clock._is_stopped_by_holds():
                self._sleep(_RECHECK if self._threads.starting() else inf)
            elif clock._next(self._deadlines.first()) == inf:
                self._wait_for_others()
            elif not self._news_arrives():
                if self._max_jumps is not None and clock.jumps >= self._max_jumps:
                    raise DeadlockError(describe_jumps(self, clock.jumps))
                clock._move(self._deadlines.first())

    def _has_work(self) -> bool:
        return bool(self._ready or self._posted or self._stopping) or self._deadlines.first() <= self.clock.time()

    def _select(self, timeout: float | None) -> None:
        """Poll for at most `timeout` real seconds, or for a day (None: no limit), and queue the events."""
        if timeout is not None:
            # epoll_wait() takes 24.8 days at most.
            timeout = min(timeout, base_events.MAXIMUM_SELECT_TIMEOUT)
        self._process_events(self._selector.select(timeout))
        if self._shuffler is not None:
            # The queue was empty before, or there would have been no need to wait.
            self._shuffler.note_io(self._ready)

    def _news_arrives(self) -> bool:
        """Wait a moment for data on its way in the network, or for another thread. True if something has arrived."""
        if not self._io_grace:
            return False
        if self._threads.could_wake(younger=True) or any(map(_may_be_late, self._watched_elsewhere())):
            self._select(self._io_grace)
        # Also without that wait, because a thread may have called just before, and have ended or become idle. It may
        # also have begun to hold the clock.
        return self._has_work() or self.clock._is_stopped_by_holds()

    def _wait_for_others(self) -> None:
        """There is no deadline. Wait in real time for other events; raise DeadlockError if there can be none."""
        if any(True for _ in self._watched_elsewhere()) or self._signal_handlers:
            self._sleep()
        elif self._threads.could_wake():
            self._sleep(_RECHECK)
        elif not self._has_work():  # otherwise a thread has called just before, and has ended or become idle
            raise DeadlockError(describe_wait(self, self.clock, self._deadlines.first(), None))

    def _sleep(self, longest: float = inf) -> None:
        """Wait in real time, for at most `longest` seconds. Raise DeadlockError when patience has run out."""
        if self._patience is not None:
            # The count starts again after each event.
            if self._slept >= self._patience:
                raise DeadlockError(describe_wait(self, self.clock, self._deadlines.first(), self._patience))
            longest = min(longest, self._patience - self._slept)
        began = monotonic()
        self._select(None if longest == inf else longest)
        self._slept += monotonic() - began

    def _watched(self) -> list[int]:
        """The watched descriptors, without the loop's own."""
        own = self._ssock.fileno()
        return [key.fd for key in self._selector.get_map().values() if key.fd != own]

    def _watched_elsewhere(self) -> Iterator[int]:
        """Those to which others may send: in a network in memory, only this loop does."""
        network = self._network
        return (fd for fd in self._watched() if network is None or not network._has_descriptor(fd))

    def _take_due(self) -> list[Any]:
        """Remove and return the timers that are due, the earliest first."""
        if self._deadlines.first() > self.clock.time():
            return []
        due = []
        heap = self._scheduled  # the heap itself, or a sorted list of its timers
        while heap and heap[0]._when <= self.clock.time():
            timer = heappop(heap)
            timer._scheduled = False
            if not timer._cancelled:
                due.append(timer)
        return due

    # -- work that takes real time -------------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """See loop.run_in_executor(). The clock is held until the future is done."""
        with self.clock.hold():
            future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
            self._hold_until(future)
        return future

    _own_run_in_executor = run_in_executor  # names may go through it, see NameResolver

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """See loop.shutdown_default_executor(). The clock is held meanwhile."""
        with self.clock.hold():
            await super().shutdown_default_executor(*args, **kwargs)

    async def _make_subprocess_transport(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.hold():
            transport = await super()._make_subprocess_transport(*args, **kwargs)
            if transport in self._children:
                # The process has ended while its pipes were being connected.
                self._children.remove(transport)
            else:
                self._children.add(transport)
                self.clock._hold()
        return transport

    def _child_watcher_callback(self, pid: int, returncode: int, transport: Any) -> None:
        super()._child_watcher_callback(pid, returncode, transport)
        # After the callbacks that the superclass has queued; this may run in another thread.
        self.call_soon_threadsafe(self._child_has_ended, transport)

    def _child_has_ended(self, transport: Any) -> None:
        if transport in self._children:
            self._children.remove(transport)
            self.clock._release()
        else:
            self._children.add(transport)

    def _hold_until(self, future: asyncio.Future[Any]) -> None:
        self.clock._hold()
        future.add_done_callback(self.clock._release)


def _check(
    start: float,
    shuffle: int | str | None,
    relax: Collection[str],
    io_grace: float,
    patience: float | None,
    max_jumps: int | None,
) -> None:
    """Raise TypeError or ValueError for invalid options."""
    check_number("start", start, "seconds")
    check_seconds("io_grace", io_grace)
    if patience is not None:
        check_number("patience", patience, "seconds")
        if patience <= 0:
            raise ValueError(f"patience must be positive: {patience!r}")
    if max_jumps is not None and (not isinstance(max_jumps, int) or isinstance(max_jumps, bool)):
        raise TypeError(f"max_jumps must be a number of jumps or None, not {max_jumps!r}")
    if max_jumps is not None and max_jumps < 1:
        raise ValueError(f"max_jumps must be positive: {max_jumps!r}")
    if shuffle is not None:
        Shuffler(shuffle, relax)
    elif relax:
        raise ValueError("relax is of no use without shuffle")


def _forget_caller(handle: Any) -> None:
    """Remove this file's frame from where an object was made, for debug mode: the program called the loop there."""
    if handle._source_traceback:
        del handle._source_traceback[-1]


def _may_be_late(fd: int) -> bool:
    """True for a socket whose data may still be on its way."""
    with suppress(OSError):
        blocks = os.get_blocking(fd)
        # Not socket.socket, in whose place test suites put a class that refuses the network.
        known = socket.SocketType(fileno=fd)
        family = known.family
        known.detach()
        # On PyPy, socket() makes it blocking.
        os.set_blocking(fd, blocks)
        return family not in _LOCAL
    return False


if TYPE_CHECKING:

    class EventLoop(_EventLoop):
        clock: Clock

        def __init__(
            self,
            selector: BaseSelector | None = None,
            *,
            start: float = 0.0,
            shuffle: int | str | None = None,
            relax: Collection[str] = (),
            io_grace: float = IO_GRACE,
            patience: float | None = None,
            max_jumps: int | None = MAX_JUMPS,
        ) -> None: ...


def make_event_loop_class(behind: type[asyncio.SelectorEventLoop]) -> type["EventLoop"]:
    """The class that adds virtual time to the loop class `behind`, hotloop's or asyncio's."""

    class EventLoop(VirtualTime, behind):  # type: ignore[misc, valid-type]
        """hotloop.EventLoop with a clock that jumps when there is nothing else to do: see new_event_loop()."""

    EventLoop.__qualname__ = "EventLoop"
    return EventLoop


if not TYPE_CHECKING:
    EventLoop = make_event_loop_class(_EventLoop)


def new_event_loop(
    *,
    start: float = 0.0,
    shuffle: int | str | None = None,
    relax: Collection[str] = (),
    io_grace: float = IO_GRACE,
    patience: float | None = None,
    max_jumps: int | None = MAX_JUMPS,
) -> EventLoop:
    """Return a new event loop whose time jumps to the next timer as soon as there is nothing else to do.

    `start` is the initial time of its clock, in seconds. `shuffle` is a seed, a number or string, that decides in which
    order independent callbacks run; `relax` gives up more of asyncio's order, "callbacks" and "futures". `io_grace` is
    how long, in real seconds, sockets of the network are given to deliver before each jump; 0: not at all. `patience`
    is how long, in real seconds, the loop waits for something from outside while the clock is held or no timer is
    pending, before it raises DeadlockError; None: for ever. `max_jumps` is how often the clock may jump in one run
    before it raises DeadlockError, for a deadlock beside a periodic timer; None: no limit.

    Raises ValueError for NaN and infinity, a negative `io_grace`, a `patience` or `max_jumps` that is not positive, an
    unknown value of `relax`, and `relax` without `shuffle`; TypeError for a value that is no number, or no seed.
    """
    return EventLoop(
        start=start, shuffle=shuffle, relax=relax, io_grace=io_grace, patience=patience, max_jumps=max_jumps
    )
