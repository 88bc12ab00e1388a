"""LoopCore: what a loop does over and over, in front of asyncio's SelectorEventLoop, which does the rest.

    class EventLoop(LoopCore, asyncio.SelectorEventLoop)

An iteration polls for I/O, queues what is due, and runs what was in the queue when it began to run; what is queued
meanwhile is for the next. It differs from asyncio's in two ways, which is what makes it faster.

Polling. asyncio polls in every iteration, a system call each, also while callbacks are queued. So does this loop while
it watches any descriptor but its own. If it watches none, only signals and timers can come, and after PATIENCE polls in
vain, in a row and with callbacks queued, it begins to skip polls and looks at the timers, for longer each time, up to
TIME_SLICE: signals and timers wait at most that much longer than under asyncio, and a busy loop spends its time on
callbacks. The first iterations of each run_forever() poll.

Wake-ups. asyncio writes to its self-pipe in every call_soon_threadsafe(), a system call each, and reads it all again.
Here that is done for the first call that finds the loop asleep, or going to sleep, and it is read once.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import repeat
from math import inf
from selectors import BaseSelector
from typing import TYPE_CHECKING, Any, ClassVar

from hotloop._pure.loop.meter import TIME_SLICE, Meter
from hotloop._pure.runtime.stdlib import base_events, events
from hotloop._pure.scheduler.ready_queue import Handle, ReadyQueue, new_handle
from hotloop._pure.scheduler.timers import TimerHandle, TimerQueue, new_timer
from hotloop._pure.tasks.future import Future
from hotloop._pure.tasks.task import Task

# From Python 3.14 on, one that other threads may cancel.
_ThreadSafeHandle = getattr(events, "_ThreadSafeHandle", Handle)

_TIME = base_events.BaseEventLoop.time

if TYPE_CHECKING:
    # A mixin, whose methods call those of the class behind it, private ones included.
    _Behind = Any
else:
    _Behind = object


class WakeUp:
    """What there is to know in other threads of a loop that may sleep.

    An object of its own, as the Meter is, and for its second reason."""

    __slots__ = ("lock", "needed")

    def __init__(self) -> None:
        # Reentrant, because a signal handler may call call_soon_threadsafe() wherever this thread is.
        self.lock = threading.RLock()
        # Whether call_soon_threadsafe() must write to the self-pipe. False only as long as callbacks run, after which
        # the queue is looked at again in any case, or while a write is on its way that no poll has seen yet.
        self.needed = True


class LoopCore(_Behind):  # type: ignore[misc]
    """The hot paths of an event loop."""

    # On the class, where tools that freeze the time do not look for functions to replace: polling must go on.
    # On the hot path it goes into a variable first, because the interpreter does not learn to call what is no method.
    _clock: ClassVar[Any] = time.monotonic

    _thread_id: int | None

    def __init__(self, selector: BaseSelector | None = None) -> None:
        self._timers = TimerQueue()
        self._wakeup = WakeUp()
        self._meter = Meter()
        super().__init__(selector)
        self._ready = ReadyQueue()

    @property
    def _scheduled(self) -> list[Any]:
        """The pending timers, a heap."""
        return self._timers.heap

    @_scheduled.setter
    def _scheduled(self, heap: list[Any]) -> None:
        self._timers.heap = heap

    # -- running -------------------------------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until stop() is called."""
        self._check_closed()
        self._check_running()
        try:
            self._run_forever_setup()
            self._begin()
            while True:
                self._run_once()
                if self._stopping:
                    break
        finally:
            try:
                if self._meter.running:
                    self._meter.end(self._clock())
            finally:
                self._run_forever_cleanup()

    if sys.version_info < (3, 13):
        # The two halves of run_forever(); from 3.13 on asyncio has them, for loops that are driven from elsewhere.

        _old_agen_hooks: Any = None

        def _run_forever_setup(self) -> None:
            self._check_closed()
            self._check_running()
            self._set_coroutine_origin_tracking(self._debug)
            self._old_agen_hooks = sys.get_asyncgen_hooks()
            self._thread_id = threading.get_ident()
            sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook)
            events._set_running_loop(self)

        def _run_forever_cleanup(self) -> None:
            self._stopping = False
            self._thread_id = None
            events._set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            if self._old_agen_hooks is not None:
                sys.set_asyncgen_hooks(*self._old_agen_hooks)
                self._old_agen_hooks = None

    def _run_once(self) -> None:
        """Run one iteration: poll if it is time to, then run what is queued by now."""
        ready = self._ready
        meter = self._meter
        if not meter.running:
            self._run_once_alone()
            return
        outer = meter.batch  # if a callback runs the loop itself, as nest_asyncio does
        if not ready or meter.mark >= meter.next_poll or getattr(self.time, "__func__", None) is not _TIME:
            if outer is not None:
                meter.mark = self._clock()
            meter.batch = None
            self._poll(ready)
        wakeup = self._wakeup
        wakeup.needed = False
        count = len(ready)
        meter.batch = batch = repeat(None, count)
        meter.items += count
        if count:
            meter.iterations += 1
        began = meter.mark
        if outer is not None:
            meter.enter(outer)
        complete = False
        handle = None
        try:
            if (meter.observing and count > 1) or meter.slow_hook is not None or self._debug:
                self._run_observed(ready, batch)
                return
            for _ in batch:
                try:
                    handle = ready.popleft()
                except IndexError:
                    # An inner iteration has run the rest of the batch.
                    meter.items -= 1
                    break
                if not handle._cancelled:
                    handle._run()
                else:
                    meter.cancelled += 1
            else:
                complete = True
        finally:
            wakeup.needed = True
            meter.batch = outer
            if not complete or outer is not None:
                meter.leave(outer, batch)
            clock = self._clock
            meter.mark = mark = clock()
            if mark - began > TIME_SLICE:
                meter.long_batch(self, began, handle, count)
            # The traceback of an exception that a task keeps leads back to this frame, which must not keep the task.
            del handle

    def _run_once_alone(self) -> None:
        """By somebody who drives the loop himself: the time between his calls is none of the loop's."""
        try:
            self._begin()
            self._run_once()
        finally:
            self._meter.end(self._clock())

    def _begin(self) -> None:
        meter = self._meter
        clock = self._clock()
        meter.begin(clock)
        meter.next_poll = clock + meter.pause_after_poll(in_vain=False)
        meter.slice = self._slice(self.time(), clock)

    def _run_observed(self, ready: ReadyQueue, batch: "repeat[None]") -> None:
        """Run what is queued, and time each callback: for debug mode, metrics() and the slow-callback hook."""
        meter = self._meter
        for _ in batch:
            if not ready:
                meter.items -= 1
                break
            handle = ready.popleft()
            if handle._cancelled:
                meter.cancelled += 1
                continue
            began = meter.mark
            try:
                if self._debug:
                    self._run_in_debug_mode(handle)
                else:
                    handle._run()
            finally:
                meter.mark = self._clock()
                if meter.mark - began > TIME_SLICE or meter.slow_hook is not None:
                    meter.took_long(self, handle, meter.mark - began)
                del handle  # see _run_once()

    def _run_in_debug_mode(self, handle: Any) -> None:
        self._current_handle = handle
        try:
            self._run_timed(handle)
        finally:
            self._current_handle = None
            del handle  # see _run_once()

    def _progress(self) -> int:
        """For a thread that watches this one: a number that is another one as soon as another callback or task step is
        run; -1 while the loop does not run any. It may be called at any time."""
        return self._meter.progress()

    def _measure(self) -> dict[str, Any]:
        """For loop.metrics(): see _loop_metrics.py."""
        timers = sum(not handle._cancelled for handle in self._timers.heap)
        now = self._clock()
        if not self._meter.measuring:
            self._meter.measure(now)
            self._measure_transports()
        numbers = self._meter.numbers(now)
        return numbers | {"ready": len(self._ready), "timers": timers, "transports": self._open_transports()}

    def _watched(self) -> None:
        """The selector's map tells it all."""

    def _report_slow(self, hook: Callable[..., object] | None, seconds: float) -> None:
        """Have `hook(loop, seconds, handle)` called for what takes that long, on the way out of it; None: no more."""
        meter = self._meter
        meter.slow_hook = hook
        meter.slow_after = seconds

    def _run_timed(self, handle: Any) -> None:
        start = self.time()
        handle._run()
        duration = self.time() - start
        if duration >= self.slow_callback_duration:
            # By way of that module, where programs and tests replace the logger.
            text = base_events._format_handle(handle)
            base_events.logger.warning("Executing %s took %.3f seconds", text, duration)
        del handle  # see _run_once()

    def _poll(self, ready: ReadyQueue) -> None:
        """Queue the handles of what is ready for I/O, then those of the timers that are due.

        If nothing is queued yet, wait until there is something, or until another thread queues something."""
        timers = self._timers
        meter = self._meter
        timeout: float | None = None
        if ready or self._stopping:
            timeout = 0
        elif timers.heap and (deadline := timers.next_deadline()) is not None:
            now = self.time()
            timeout = deadline - now
            if timeout > base_events.MAXIMUM_SELECT_TIMEOUT:
                timeout = base_events.MAXIMUM_SELECT_TIMEOUT
            elif timeout <= 0:
                if self._clock() < meter.next_poll:
                    # A timer that is due is as good as a queued callback: no reason to poll before it is time to.
                    timers.expire(now, ready)
                    return
                timeout = 0
        polled_before = meter.slice_began
        if meter.measuring:
            meter.end_slice()
        if timeout != 0:
            with self._wakeup.lock:
                # Whoever comes after this writes to the self-pipe; whoever came before has left a handle, or has
                # written.
                if ready:
                    timeout = 0
            meter.waiting = timeout != 0
        events = self._selector.select(timeout)
        if meter.measuring:
            meter.polled(self._clock())
        meter.waiting = False
        meter.polls += 1
        in_vain = timeout == 0 and not events and self._watches_nothing()
        self._process_events(events)
        read_clock = self._clock
        clock = read_clock()
        if not meter.measuring:
            meter.mark = clock
        if timers.heap or not meter.slice:
            now = self.time()
            earliest = timers.expire(now, ready)
            if earliest is not None and meter.measuring:
                # One that was due already when it was set is late only since the timers were looked at before.
                meter.lateness.add(1, min(now - earliest, clock - polled_before))
            meter.slice = self._slice(now, clock)
            meter.due_by = now + meter.slice
        else:
            # Not worth reading time() for; the next call_at() has it read.
            meter.due_by = inf
        meter.next_poll = clock + meter.pause_after_poll(in_vain)

    def _watches_nothing(self) -> bool:
        """But for the loop's own descriptors. What tests put in the selector's place has no map to count in."""
        selector = self._selector
        return isinstance(selector, BaseSelector) and len(selector.get_map()) <= self._internal_fds

    def _add_reader(self, *arguments: Any, **keywords: Any) -> Any:
        # What is there already is seen in the next iteration.
        self._meter.next_poll = 0.0
        return super()._add_reader(*arguments, **keywords)

    def _add_writer(self, *arguments: Any, **keywords: Any) -> Any:
        self._meter.next_poll = 0.0
        return super()._add_writer(*arguments, **keywords)

    def _slice(self, now: float, clock: float) -> float:
        """For how long callbacks may keep the loop from polling, whose time() is `now`: where that was replaced, or the
        clock behind it, any number of them may be too many."""
        own = getattr(self.time, "__func__", None) is _TIME
        return TIME_SLICE if own and 0 <= now - clock < TIME_SLICE else 0.0

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.remove(handle)

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:
        """Have `callback(*args)` called in the next iteration, in `context` or a copy of the current one."""
        if self._closed:
            self._check_closed()
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_soon")
            handle = Handle(callback, args, self, context)
            _forget_caller(handle)
        else:
            handle = new_handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have `callback(*args)` called in `delay` seconds."""
        if delay is None:
            raise TypeError("delay must not be None")
        timer = self.call_at(self.time() + delay, callback, *args, context=context)
        if self._debug:
            _forget_caller(timer)
        return timer

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have `callback(*args)` called at `when`, in seconds by time()."""
        if when is None:
            raise TypeError("when cannot be None")
        if self._closed:
            self._check_closed()
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
            timer = TimerHandle(when, callback, args, self, context)
            _forget_caller(timer)
        else:
            timer = new_timer(when, callback, args, self, context)
        self._timers.push(timer)
        meter = self._meter
        if not when > meter.due_by:
            # Maybe due already.
            meter.next_poll = 0.0
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """call_soon(), from any thread and from signal handlers."""
        if self._closed:
            self._check_closed()
        handle: asyncio.Handle = _ThreadSafeHandle(callback, args, self, context)
        if self._debug:
            self._check_callback(callback, "call_soon_threadsafe")
            _forget_caller(handle)
            if _ThreadSafeHandle is not Handle:
                _forget_caller(handle)  # its __init__() calls that of asyncio.Handle
        wakeup = self._wakeup
        with wakeup.lock:
            self._ready.append(handle)
            if wakeup.needed or not self._runs_own_iterations():
                self._wake_up()
        return handle

    def _wake_up(self) -> None:
        # In this order: once written, the loop may have woken up, run what there is and gone to sleep again.
        wakeup = self._wakeup
        wakeup.needed = False
        try:
            self._write_to_self()
        except BaseException:
            wakeup.needed = True  # a signal handler has raised
            raise

    def _write_to_self(self) -> None:
        # As asyncio's; but what could not be written has not woken the loop.
        csock = self._csock
        if csock is None:
            return
        try:
            csock.send(b"\0")
        except OSError:
            self._wakeup.needed = True
            if self._debug:
                base_events.logger.debug("Fail to write a null byte into the self-pipe socket", exc_info=True)

    def _read_from_self(self) -> None:
        # If there is more, the selector says so again.
        try:
            data = self._ssock.recv(4096)
        except BlockingIOError:
            return
        self._process_self_data(data)

    def _runs_own_iterations(self) -> bool:
        """False if _run_once() was replaced, as by nest_asyncio: a callback may sleep in an inner iteration then."""
        return getattr(self._run_once, "__func__", None) is LoopCore._run_once

    # -- futures and tasks ---------------------------------------------------------------------------------------------

    def create_future(self) -> Any:
        """A Future of this loop."""
        return Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
        """Have the loop run a coroutine; returns its Task, or what the task factory makes of it.

        Keywords: those of Task, but `loop`."""
        if self._task_factory is not None:
            # What a factory is given has changed with the versions of Python.
            return super().create_task(coro, **kwargs)
        self._check_closed()
        task = Task(coro, loop=self, **kwargs)
        if self._debug:
            _forget_caller(task)
        try:
            return task
        finally:
            # An exception from an eager start has this frame in its traceback, which must not hold the task in turn.
            del task


def _forget_caller(made: Any) -> None:
    """Where something was made in debug mode is where its user called the loop, not where the loop called its class."""
    if made._source_traceback:
        del made._source_traceback[-1]


class FallbackLoopCore(LoopCore):
    """A LoopCore that hands out asyncio's own futures and tasks, because the interpreter has those in C."""

    create_future = asyncio.SelectorEventLoop.create_future
    create_task = asyncio.SelectorEventLoop.create_task  # type: ignore[assignment]
