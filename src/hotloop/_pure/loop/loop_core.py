"""LoopCore: the hot paths of a loop, in front of asyncio's SelectorEventLoop, which does the rest.

hotloop.EventLoop is NetworkCore (network/), which derives from this class, in front of asyncio.SelectorEventLoop.

An iteration polls for I/O, queues the timers that are due, and then runs a batch: what is on the queue at that moment.
What is queued meanwhile waits for the next iteration. It differs from asyncio's iteration in two ways:

Polling. asyncio polls in every iteration, a system call each, even while callbacks are queued. So does this loop while
it watches any descriptor but its own. If it watches none, a poll can only find signals and timers. Then the loop begins
to skip polls after PATIENCE polls in a row that found nothing while callbacks were queued. It skips them for longer
each time, up to TIME_SLICE: signals and timers wait at most that much longer than under asyncio, and a busy loop spends
its time on callbacks. The first iterations of each run_forever() poll, and all do while the process has other threads:
the GIL is released in polls, and a thread that waits for it catches one of many.

Wake-ups. asyncio writes to its self-pipe in every call_soon_threadsafe(), a system call each, and reads it all again.
This loop's self-pipe is written only by the first call that finds the loop asleep or going to sleep, and read once.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import repeat
from math import inf, nextafter
from operator import length_hint
from selectors import BaseSelector
from time import get_clock_info, monotonic
from types import MethodDescriptorType
from typing import Any

from hotloop._asyncio.classes import own_method
from hotloop._asyncio.internals import base_events, events, tasks
from hotloop._asyncio.mixin import Behind
from hotloop._asyncio.own_create_task import create_task_is_asyncios
from hotloop._pure.loop.metrics import TIME_SLICE, Measurements, cpu_clock, cpu_seconds_since
from hotloop._pure.scheduler.handles import Handle, new_handle
from hotloop._pure.scheduler.ready_queue import ReadyQueue
from hotloop._pure.scheduler.timers import TimerHandle, TimerQueue, new_timer
from hotloop._pure.tasks.future import Future
from hotloop._pure.tasks.task import Task

# From Python 3.14 on, asyncio has a handle that other threads may cancel.
_ThreadSafeHandle = getattr(events, "_ThreadSafeHandle", Handle)

# Since 3.13.3 create_task() passes unknown keywords on to the task.
_PASSES_KEYWORDS_ON = sys.version_info >= (3, 13, 3)
_TIME = base_events.BaseEventLoop.time
# What asyncio sets _clock_resolution to.
_RESOLUTION = get_clock_info("monotonic").resolution


class WakeUp:
    """Tells other threads whether the loop may be asleep.

    An object of its own, to keep the loop's instance dict small; see Measurements."""

    __slots__ = ("lock", "needed")

    def __init__(self) -> None:
        # Reentrant, because a signal handler may call call_soon_threadsafe() while this thread holds the lock.
        self.lock = threading.RLock()
        # Whether call_soon_threadsafe() must write to the self-pipe. False only while callbacks run, because the loop
        # looks at the queue again afterwards, or while a byte is in the self-pipe that no poll has reported yet.
        self.needed = True


class LoopCore(Behind):  # type: ignore[misc]
    """The hot paths of an event loop."""

    # Attributes with two underscores: a subclass that runs its callbacks itself has names such as `_timers` of its own.

    _stopping: bool
    _thread_id: int | None

    def __init__(self, selector: BaseSelector | None = None) -> None:
        self.__timers = TimerQueue()
        self.__wakeup = WakeUp()
        self._measurements = Measurements()
        super().__init__(selector)
        self._ready = ReadyQueue()

    @property
    def _scheduled(self) -> list[Any]:
        """The pending timers, a heap."""
        return self.__timers.heap

    @_scheduled.setter
    def _scheduled(self, heap: list[Any]) -> None:
        self.__timers.heap = heap

    # -- running -------------------------------------------------------------------------------------------------------

    _old_agen_hooks: Any = None

    def run_forever(self) -> None:
        """Run until stop() is called."""
        outer_hooks, outer_thread = self._old_agen_hooks, self._thread_id
        outer_task = None  # the current task of the run that this one is nested in
        try:
            self._run_forever_setup()
        except BaseException:
            if self._thread_id != outer_thread:
                self._run_forever_cleanup()
            raise
        try:
            # Since Python 3.14 this is the task of the running loop, whichever that is.
            outer_task = tasks.current_task(self)
            self.__begin()
            while True:
                self._run_once()
                if self._stopping:
                    break
        finally:
            try:
                if self._measurements.running:
                    self._measurements.end(self._measurements.clock())
                # An interrupt may come just after a step has made its task the current one. No other could run then.
                task = tasks.current_task(self)
                if task is not None and task is not outer_task:
                    tasks._leave_task(self, task)
            finally:
                # First, by steps that no interrupt comes between: the loop can run again.
                self._stopping = False
                self._thread_id = None
                events._set_running_loop(None)
                self._run_forever_cleanup()
                # The hooks of the run that this one was nested in.
                self._old_agen_hooks = outer_hooks

    if sys.version_info < (3, 13):
        # The two halves of run_forever(). asyncio has them from Python 3.13 on, for loops that other code drives.

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
        """Run one iteration: poll if it is time to, then run what is queued."""
        ready = self._ready
        metrics = self._measurements
        if not metrics.running:
            self._run_once_alone()
            return
        outer = metrics.batch  # the batch whose callback runs the loop, as with nest_asyncio
        if not ready or metrics.last_reading >= metrics.next_poll or getattr(self.time, "__func__", None) is not _TIME:
            if outer is not None:
                metrics.last_reading = metrics.clock()
            metrics.batch = None
            self.__poll(ready)
        wakeup = self.__wakeup
        wakeup.needed = False
        count = len(ready)
        metrics.batch = batch = repeat(None, count)
        metrics.items += count
        if count:
            metrics.iterations += 1
        began = metrics.last_reading
        if outer is not None:
            metrics.enter(outer)
        complete = timed = False
        handle = None
        try:
            if (metrics.time_items and count > 1) or metrics.slow_hook is not None or self._debug:
                timed = True
                self._run_and_time(ready, batch)
                return
            for _ in batch:
                try:
                    handle = ready.popleft()
                except IndexError:
                    # An inner iteration has run the rest of the batch.
                    metrics.items -= 1
                    break
                if not handle._cancelled:
                    handle._run()
                    if self._debug:
                        # The callback has called set_debug().
                        timed = True
                        metrics.report_long_part(self, began, handle, count - length_hint(batch))
                        self._run_and_time(ready, batch)
                        return
                else:
                    metrics.cancelled += 1
            else:
                complete = True
        finally:
            wakeup.needed = True
            metrics.batch = outer
            if not complete or outer is not None:
                metrics.leave(outer, batch)
            read_clock = metrics.clock
            metrics.last_reading = mark = read_clock()
            if mark - began > TIME_SLICE:
                metrics.report_long_batch(self, began, handle, count, timed)
            # The traceback of an exception that a task keeps holds this frame, which must not hold the task.
            del handle

    def _run_once_alone(self) -> None:
        """Run an iteration for a program that calls _run_once() itself. The time between its calls does not count."""
        try:
            self.__begin()
            self._run_once()
        finally:
            self._measurements.end(self._measurements.clock())

    def __begin(self) -> None:
        metrics = self._measurements
        clock = metrics.clock()
        metrics.begin(clock)
        metrics.next_poll = clock + metrics.backoff_after_poll(empty=False)
        metrics.slice = self.__slice(self.time(), clock)

    def _run_and_time(self, ready: ReadyQueue, batch: "repeat[None]") -> None:
        """Run what is queued, and time each callback: for debug mode, metrics() and the slow-callback hook."""
        metrics = self._measurements
        for _ in batch:
            if not ready:
                metrics.items -= 1
                break
            handle = ready.popleft()
            if handle._cancelled:
                metrics.cancelled += 1
                continue
            cpu_began = None if metrics.slow_hook is None else metrics.cpu_clock_before_item(metrics.clock)
            began = metrics.last_reading
            try:
                if self._debug:
                    self._run_in_debug_mode(handle)
                else:
                    handle._run()
            finally:
                metrics.last_reading = metrics.clock()
                if metrics.last_reading - began > TIME_SLICE or metrics.slow_hook is not None:
                    metrics.report_slow(self, handle, metrics.last_reading - began, cpu_began)
                del handle  # as in _run_once()

    def _run_in_debug_mode(self, handle: Any) -> None:
        self._current_handle = handle
        try:
            self._run_and_log_slow(handle)
        finally:
            self._current_handle = None
            del handle  # see _run_once()

    def _run_and_log_slow(self, handle: Any) -> None:
        cpu_began = cpu_clock()
        start = self.time()
        handle._run()
        duration = self.time() - start
        if duration >= self.slow_callback_duration:
            # Through asyncio's module, where programs and tests replace the logger.
            text = base_events._format_handle(handle)
            # Tools read asyncio's text, so it stays as it is. The processor time is an attribute of the record.
            extra = {"hotloop_cpu_time": cpu_seconds_since(cpu_began)}
            base_events.logger.warning("Executing %s took %.3f seconds", text, duration, extra=extra)
        del handle  # see _run_once()

    def _progress(self) -> int:
        """For the watchdog in another thread: a number that changes with each callback or task step that is run, and
        is -1 while none runs. It may be called at any time."""
        return self._measurements.progress()

    def _collect_metrics(self) -> dict[str, Any]:
        """For loop.metrics(): see _loop_metrics.py."""
        timers = sum(not handle._cancelled for handle in self.__timers.heap)
        now = self._measurements.clock()
        if not self._measurements.measuring:
            self._measurements.measure(now)
            self._count_bytes_of_open_transports()
        numbers = self._measurements.numbers(now)
        return numbers | {"ready": len(self._ready), "timers": timers, "transports": self._open_transports()}

    def _count_watched(self) -> None:
        """None: the caller looks into the selector's map."""

    def _set_slow_hook(self, hook: Callable[..., object] | None, seconds: float) -> None:
        """Have `hook(loop, seconds, cpu_seconds, handle)` called after each callback that took that long; None removes
        the hook. The processor time is None where it is not known."""
        metrics = self._measurements
        metrics.slow_hook = hook
        metrics.slow_after = seconds

    def __poll(self, ready: ReadyQueue) -> None:
        """Queue the handles of descriptors that are ready, then those of timers that are due.

        If nothing is queued, wait until a descriptor is ready, a timer is due or another thread queues a callback."""
        timers = self.__timers
        metrics = self._measurements
        timeout: float | None = None
        if ready or self._stopping:
            timeout = 0
        elif timers.heap and (deadline := timers.next_deadline()) is not None:
            now = self.time()
            timeout = deadline - now
            if timeout > base_events.MAXIMUM_SELECT_TIMEOUT:
                timeout = base_events.MAXIMUM_SELECT_TIMEOUT
            elif timeout <= 0:
                if metrics.clock() < metrics.next_poll:
                    # A timer that is due counts like a queued callback: it is no reason to poll early.
                    timers.expire(self.__due_until(now), ready)
                    return
                timeout = 0
        polled_before = metrics.slice_began
        if metrics.measuring:
            metrics.end_slice()
        if timeout != 0:
            with self.__wakeup.lock:
                # A thread that gets the lock later writes to the self-pipe; one that had it before has queued a
                # handle, or has written.
                if ready:
                    timeout = 0
            metrics.waiting = timeout != 0
        reported = self._selector.select(timeout)
        if metrics.measuring:
            metrics.polled(metrics.clock())
        metrics.waiting = False
        metrics.polls += 1
        empty = timeout == 0 and not reported and self._watches_nothing()
        self._process_events(reported)
        read_clock = metrics.clock
        clock = read_clock()
        if not metrics.measuring:
            metrics.last_reading = clock
        if timers.heap or not metrics.slice:
            now = self.time()
            due = self.__due_until(now)
            earliest = timers.expire(due, ready)
            if earliest is not None and earliest <= now and metrics.measuring:
                # A timer may have been set with a deadline in the past: it is late at most since the previous poll.
                metrics.lateness.add(1, min(now - earliest, clock - polled_before))
            metrics.slice = self.__slice(now, clock)
            metrics.due_by = due + metrics.slice
        else:
            # Not worth a call of time() now: the next call_at() makes the loop poll, which reads it.
            metrics.due_by = inf
        metrics.next_poll = clock + metrics.backoff_after_poll(empty)

    def __due_until(self, now: float) -> float:
        """The latest deadline of the timers that are due `now`. Never early by the system's clock, unless the program
        has set how early. By a clock of the program's as early as under asyncio: one that adds up the waits of the loop
        misses deadlines by errors of rounding."""
        early: float = self._clock_resolution
        if early == _RESOLUTION and getattr(self.time, "__func__", None) is _TIME and time.monotonic is monotonic:
            return now
        return max(now, nextafter(now + early, -inf))

    def _watches_nothing(self) -> bool:
        """Whether the loop's own descriptors are the only ones. A test's replacement of the selector has no map."""
        selector = self._selector
        return isinstance(selector, BaseSelector) and len(selector.get_map()) <= self._internal_fds

    def _add_reader(self, *arguments: Any, **keywords: Any) -> Any:
        # The next iteration polls, for data that is there already.
        self._measurements.next_poll = 0.0
        return super()._add_reader(*arguments, **keywords)

    def _add_writer(self, *arguments: Any, **keywords: Any) -> Any:
        self._measurements.next_poll = 0.0
        return super()._add_writer(*arguments, **keywords)

    def __slice(self, now: float, clock: float) -> float:
        """How long, in seconds, queued callbacks may delay the next poll. `now` is the loop's time(); if a program has
        replaced it or the clock behind it, 0: every iteration polls."""
        own = getattr(self.time, "__func__", None) is _TIME
        return TIME_SLICE if own and 0 <= now - clock < TIME_SLICE else 0.0

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.__timers.cancelled(handle)

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:
        """Have `callback(*args)` called in the next iteration, in `context` or a copy of the current one."""
        if self._closed:
            self._check_closed()
        if type(callback) is MethodDescriptorType:
            callback = own_method(callback, args)
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
        if type(callback) is MethodDescriptorType:
            callback = own_method(callback, args)
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
            timer = TimerHandle(when, callback, args, self, context)
            _forget_caller(timer)
        else:
            timer = new_timer(when, callback, args, self, context)
        self.__timers.push(timer)
        metrics = self._measurements
        if not when > metrics.due_by:
            # It may be due before the next poll.
            metrics.next_poll = 0.0
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """call_soon(), from any thread and from signal handlers."""
        if self._closed:
            self._check_closed()
        if type(callback) is MethodDescriptorType:
            callback = own_method(callback, args)
        handle: asyncio.Handle = _ThreadSafeHandle(callback, args, self, context)
        if self._debug:
            self._check_callback(callback, "call_soon_threadsafe")
            _forget_caller(handle)
            if _ThreadSafeHandle is not Handle:
                _forget_caller(handle)  # its __init__() calls that of asyncio.Handle
        wakeup = self.__wakeup
        with wakeup.lock:
            self._ready.append(handle)
            if wakeup.needed or not self._runs_own_iterations():
                self.__wake_up()
        return handle

    def __wake_up(self) -> None:
        # In this order: after the write, the loop may wake up, run what is queued and go to sleep again at any time.
        wakeup = self.__wakeup
        wakeup.needed = False
        try:
            self._write_to_self()
        except BaseException:
            wakeup.needed = True  # a signal handler has raised, so nothing was written
            raise

    def _write_to_self(self) -> None:
        # As in asyncio, except that a write that failed has not woken the loop.
        csock = self._csock
        if csock is None:
            return
        try:
            csock.send(b"\0")
        except OSError:
            self.__wakeup.needed = True
            if self._debug:
                base_events.logger.debug("Fail to write a null byte into the self-pipe socket", exc_info=True)

    def _read_from_self(self) -> None:
        # Once for wake-ups alone: if more is left, the next poll reports it. But for a signal the handler's callback is
        # queued by asyncio's _add_callback_signalsafe(), which writes to the self-pipe. As in asyncio that is read at
        # once: a later call for it would take the next signals a turn early.
        found_signals = True
        while found_signals:
            try:
                data = self._ssock.recv(4096)
            except BlockingIOError:
                return
            self._process_self_data(data)
            found_signals = any(data)

    def _runs_own_iterations(self) -> bool:
        """False if _run_once() was replaced, as by nest_asyncio: then a callback may sleep in an inner iteration."""
        return getattr(self._run_once, "__func__", None) is LoopCore._run_once

    # -- futures and tasks ---------------------------------------------------------------------------------------------

    def create_future(self) -> Any:
        """Return a new Future of this loop."""
        return Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
        """Have the loop run a coroutine. Returns its Task, or the result of the task factory.

        Keywords: those of Task, except `loop`."""
        if self._task_factory is not None or not create_task_is_asyncios():
            # Tracers replace it in asyncio. The arguments of a factory depend on the version of Python.
            return super().create_task(coro, **kwargs)
        if kwargs and not _PASSES_KEYWORDS_ON:
            unknown = [keyword for keyword in kwargs if keyword not in ("name", "context")]
            if unknown:
                raise TypeError(f"create_task() got an unexpected keyword argument {unknown[0]!r}")
        self._check_closed()
        task = Task(coro, loop=self, **kwargs)
        if self._debug:
            _forget_caller(task)
        try:
            return task
        finally:
            # The traceback of an exception from an eager start holds this frame, which must not hold the task.
            del task


def _forget_caller(made: Any) -> None:
    """Remove the loop's own frame from where an object was made, for debug mode: the program called the loop there."""
    if made._source_traceback:
        del made._source_traceback[-1]
