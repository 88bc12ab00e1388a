"""Random programs of a loop's life: runs that are stopped, refused, interrupted and begun again, what is left for the
next run and for close(), and calls of a closed loop. Each step sees what it sees on asyncio, in the same turn.

A program is a list of steps, taken outside any run. Some make what takes further steps: a callback, a timer, a task, a
reader, a handler of signals, a callback of a future, an asynchronous generator. A step may be taken everywhere: within
a callback, a run is refused. The loop is a bare one or an asyncio.Runner's.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import logging
import math
import re
import signal
import socket
import sys
import threading
import unittest.mock
import warnings

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Step, step
from support.interpreter import counts_references, uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    counts_references,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers on loops"),
]

TURNS = 16  # of one run, at most
QUIET_TURNS = 8  # in which nothing was noted, before a run waits for a timer that ends it
BROKEN_BY_NESTED_RUNS = sys.version_info[:3] == (3, 13, 0)  # asyncio, though it refuses them

variable = contextvars.ContextVar("variable", default=0)


class Plain(Exception):
    pass


class Leaves(BaseException):
    pass


ERRORS = (Plain, Leaves, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, StopIteration)
SIGNALS = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
FACTORIES = ("none", "own", "raises", "nothing", "future", "eager")
HANDLERS = {
    "note": None, "default": None, "stops": None, "closes": None, "raises": Plain, "leaves": Leaves,
    "exits": SystemExit, "interrupts": KeyboardInterrupt, "cancels": asyncio.CancelledError,
}  # fmt: skip
RUNS = ("forever", "forever", "future", "done", "foreign", "nonsense", "other loop", "shutdown")
HOOKS = ("_asyncgen_firstiter_hook", "_asyncgen_finalizer_hook")

# Methods of the loop, and what they are called with.
ORDINARY_CALLS = [
    ("stop",), ("close",), ("set_debug", True), ("set_debug", False),
    ("run_in_executor", None, print),
    ("__setattr__", "slow_callback_duration", 0), ("__setattr__", "slow_callback_duration", 1000),
    *[("remove_signal_handler", number) for number in SIGNALS],
]  # fmt: skip
ODD_CALLS = [
    ("call_at", None, print), ("call_later", None, print), ("add_reader", -1, print), ("remove_writer", 10000),
    ("add_signal_handler", signal.SIGKILL, print), ("add_signal_handler", 1000, print),
    ("remove_signal_handler", signal.SIGWINCH), ("create_task", 5), ("run_until_complete", None),
    ("set_default_executor", 5), ("set_default_executor", None), ("set_exception_handler", 5), ("set_task_factory", 5),
]  # fmt: skip
REPORTS = [
    ("call_exception_handler", context)
    for context in (
        {}, {"message": None}, {"message": "odd", "exception": "none"}, {1: 2, "message": "unsorted"},
        {"exception": Plain("reported")}, {"message": "a handle", "handle": "none", "source_traceback": []}, None,
    )
]  # fmt: skip
numbers = st.integers(0, 5)

runs = step("run", st.sampled_from(RUNS))
leaves = [
    runs,
    step("call_loop", st.sampled_from(ORDINARY_CALLS)),
    step("call_loop", st.sampled_from(ODD_CALLS)),
    step("call_loop", st.sampled_from(REPORTS)),
    step("raise_signal", st.sampled_from(SIGNALS)),
    step("handler", st.sampled_from(sorted(HANDLERS))),
    step("factory", st.sampled_from(FACTORIES)),
    step("end_future", st.tuples(numbers, st.sampled_from(["result", "exception", "cancel"]))),
    step("end_job", st.tuples(numbers, st.sampled_from(["result", "exception", "cancel", "thread"]))),
    step("use_handle", st.tuples(numbers, st.booleans())),
    step("feed", st.booleans()),
    *[step(name, numbers) for name in ("cancel_task", "wait")],
    *[step(name) for name in ("state", "remove_reader", "drop_generator", "close_generator", "collect")],
]


def steps_with(bodies):
    """Steps, half of which make something that takes the steps of a body."""
    makers = st.one_of(
        step("call", st.tuples(st.sampled_from(["soon", "soon", "threadsafe", "context"]), bodies)),
        step("call_at", st.tuples(st.sampled_from(["now", "past", "huge", "inf"]), bodies)),
        step("call_later", st.tuples(st.sampled_from([0, -1, 1000]), bodies)),
        step("task", st.tuples(st.sampled_from(["task", "stubborn", "eager"]), bodies)),
        step("main", st.tuples(bodies)),
        step("add_signal_handler", st.tuples(st.sampled_from(SIGNALS), bodies)),
        step("add_reader", st.tuples(bodies)),
        step("add_callback", st.tuples(numbers, bodies)),
        step("begin_generator", st.tuples(bodies, bodies)),
    )
    return st.booleans().flatmap(lambda makes: makers if makes else st.one_of(*leaves))


def bodies_of(steps):
    last = st.sampled_from([()] * 7 + [(Step("raises", error),) for error in ERRORS])
    return st.builds(lambda steps, last: (*steps, *last), st.lists(steps, max_size=4), last)


bodies = bodies_of(steps_with(bodies_of(st.one_of(*leaves))))
programs = st.lists(st.one_of(runs, steps_with(bodies), steps_with(bodies)), min_size=3, max_size=16)


# What differs in texts between loops, or from run to run.
VARYING = re.compile(
    r"(0|\.)x[0-9a-f]+|took [\d.]+|when=[-\d.e+]+|Task-\d+|fd=\d+| created at [^ >]+|\.\.\.\w+\.py:\d+|"
    r"_?_wakeup|task_wakeup|'(\w+\.)*Future'|(\w+\.)*(BaseEventLoop|EventLoop|_UnixSelectorEventLoop|LoopCore)\b"
)


def all_tasks_in_order(loop=None):
    """The Runner cancels them in this order, and not in a set's."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name()))


class Jobs(concurrent.futures.ThreadPoolExecutor):
    """An executor whose jobs end when the program says so."""

    def __init__(self, life):
        super().__init__(1)
        self.life = life

    def submit(self, function, *arguments):
        self.life.jobs.append(concurrent.futures.Future())
        return self.life.jobs[-1]

    def shutdown(self, wait=True, **keywords):
        self.life.note("executor shut down", wait)


class FinishedThread(threading.Thread):
    """Has ended when start() returns."""

    def start(self):
        super().start()
        self.join()


class Life(logging.Filter):
    """Plays a program, and notes what happens."""

    def __init__(self, implementation, by_runner):
        super().__init__()
        self.implementation = implementation
        self.runner = asyncio.Runner(loop_factory=implementation.new_event_loop) if by_runner else None
        self.loop = self.runner.get_loop() if by_runner else implementation.new_event_loop()
        self.other = implementation.new_event_loop()
        self.trace, self.drops = [], []
        self.turn = self.turns_left = self.noted = self.quiet = 0
        self.handles, self.tasks, self.mains, self.jobs, self.generators = [], [], [], [], []
        self.futures = [self.loop.create_future() for _ in range(3)]
        self.ends = socket.socketpair()
        self.handler("note")
        self.loop.slow_callback_duration = 1000
        self.loop.set_default_executor(Jobs(self))
        self.loop.call_soon(self.count)

    # -- notes ---------------------------------------------------------------------------------------------------------

    def note(self, *what):
        self.trace.append((self.turn, *what))

    def told(self, what):
        return VARYING.sub("", str(what))

    def error(self, error):
        # asyncio's own two implementations word an InvalidStateError differently.
        return type(error).__name__, "" if isinstance(error, asyncio.InvalidStateError) else self.told(error)

    def filter(self, record):
        """asyncio's logger has been told something."""
        text = self.told(record.getMessage()).splitlines()[0]
        if not self.is_of_a_drop(text) and "_read_from_self" not in text:  # asyncio wakes itself more often
            self.note("logged", text, *[self.told(one) for one in (record.exc_info or ())[:2]])
        return False

    def is_of_a_drop(self, report):
        """Tracebacks keep asyncio's frames, and so its tasks, a little longer."""
        drops = [text for text in ("never retrieved", "destroyed") if text in str(report)]
        self.drops += drops
        return bool(drops)

    def warned(self, message, category, *place, **more):
        if "never awaited" in str(message):
            # When a coroutine is dropped that has not begun depends on the tracebacks that refer to its task.
            self.drops.append("never awaited")
        else:
            self.note("warned", category.__name__, self.told(message).splitlines()[0])

    def unraisable(self, what):
        # Whether a generator is dropped before the task that closes it is the collector's choice.
        if "async generator ignored" not in str(what.exc_value):
            self.note("unraisable", *self.error(what.exc_value))

    def state(self):
        loop = self.loop
        self.note(
            "state",
            self.told(repr(loop)),
            (loop.is_running(), loop.is_closed(), loop.get_debug(), asyncio._get_running_loop() is loop),
            [hook and hook == getattr(loop, name) for hook, name in zip(sys.get_asyncgen_hooks(), HOOKS, strict=True)],
            sys.get_coroutine_origin_tracking_depth(),
            sum(not timer.cancelled() for timer in loop._scheduled),
            sorted(task.get_name() for task in asyncio.all_tasks(loop) if task in self.tasks),
            bool(asyncio.current_task(loop)),
            len(loop._asyncgens),
            [signal.getsignal(number) is signal.default_int_handler for number in SIGNALS],
            [self.told(future) for future in self.futures],
        )

    # -- taking steps --------------------------------------------------------------------------------------------------

    def take(self, one):
        arguments = one.argument if isinstance(one.argument, tuple) else (one.argument,)
        try:
            result = getattr(self, one.name)(*(() if one.argument is None else arguments))
        except BaseException as error:
            self.note(one.name, *self.error(error))
            if one.name in ("raises", "raise_signal"):
                raise
        else:
            self.note(one.name, self.told(result))

    def play(self, body):
        for one in body if self.loop else ():
            self.take(one)

    def taking(self, kind, body):
        """A callback that takes the steps of a body."""

        def callback(*arguments):
            self.note("called", kind, len(arguments), variable.get())
            self.play(body)

        return callback

    async def script(self, number, body, stubborn=False):
        """The coroutine of a task."""
        self.mains.append(asyncio.current_task())
        self.note("begins", number, variable.get())
        for one in body:
            try:
                await (self.futures[one.argument % 3] if one.name == "wait" else asyncio.sleep(0))
                if one.name != "wait":
                    self.take(one)
            except asyncio.CancelledError as error:
                self.note("cancelled", number, *self.error(error))
                if not stubborn:
                    raise
        self.note("ends", number)
        return number

    async def generator(self, number, first, last):
        try:
            self.play(first)
            yield number
        finally:
            self.note("finally", number)
            self.play(last)
            if number % 2:
                await asyncio.sleep(0)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def count(self):
        """Called once in each turn, until nothing happens any more."""
        self.turn += 1
        self.turns_left -= 1
        self.quiet = self.quiet + 1 if len(self.trace) == self.noted else 0
        self.noted = len(self.trace)
        if self.turns_left <= 0:
            self.loop.stop()
        elif self.quiet >= QUIET_TURNS:
            self.quiet = self.turns_left = 0
            self.loop.call_later(0.0001, self.count)
            return
        self.loop.call_soon(self.count)

    def run(self, what):
        loop = self.loop
        if BROKEN_BY_NESTED_RUNS and what in ("forever", "other loop") and asyncio._get_running_loop():
            return None
        if what == "forever":
            return loop.run_forever()
        if what == "other loop":
            self.other.call_soon(self.other.stop)
            return self.other.run_forever()
        if what == "shutdown":
            return loop.run_until_complete(self.shutdown())
        done = loop.create_future()
        done.set_result("done")
        made = {"future": self.futures[0], "done": done, "foreign": self.other.create_future(), "nonsense": 5}
        return loop.run_until_complete(made[what])

    async def shutdown(self):
        self.mains.append(asyncio.current_task())
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()

    def main(self, body):
        run = self.runner.run if self.runner else self.loop.run_until_complete
        return run(self.script("main", body))

    # -- what takes steps ----------------------------------------------------------------------------------------------

    def call(self, how, body):
        context = contextvars.copy_context() if how == "context" else None
        method = self.loop.call_soon_threadsafe if how == "threadsafe" else self.loop.call_soon
        no_wake_up = contextlib.nullcontext()
        if self.implementation.name != "c":
            # asyncio wakes itself also in its own thread, the loop in Python before a run, and may see a signal a turn
            # earlier by that.
            no_wake_up = unittest.mock.patch.object(self.loop, "_write_to_self")
        with no_wake_up:
            self.handles.append(method(self.taking(how, body), how, context=context))

    def call_later(self, seconds, body):
        self.handles.append(self.loop.call_later(seconds, self.taking("later", body)))

    def call_at(self, when, body):
        now = self.loop.time()
        moments = {"now": now, "past": now - 1, "huge": 2**60, "inf": math.inf}  # no two that are due are equal
        self.handles.append(self.loop.call_at(moments[when], self.taking(when, body)))

    def task(self, kind, body):
        name = f"script {len(self.tasks) + len(self.mains)}"
        coroutine = self.script(name, body, kind == "stubborn")
        if kind == "eager" and sys.version_info >= (3, 12) and not self.loop.is_closed():
            task = asyncio.create_eager_task_factory(self.implementation.Task)(self.loop, coroutine, name=name)
        else:
            task = self.loop.create_task(coroutine, name=name)
        self.tasks.append(task)

    def add_signal_handler(self, number, body):
        self.loop.add_signal_handler(number, self.taking(number.name, body))

    def add_reader(self, body):
        self.loop.add_reader(self.ends[0], self.taking("reader", body))

    def add_callback(self, index, body):
        self.futures[index % 3].add_done_callback(self.taking("future", body))

    def begin_generator(self, first, last):
        if self.loop._asyncgens:  # a set, so shutdown_asyncgens() closes several in any order
            return
        self.generators.append(self.generator(len(self.generators), first, last))
        with contextlib.suppress(StopIteration):
            self.generators[-1].asend(None).send(None)

    # -- the other steps -----------------------------------------------------------------------------------------------

    def call_loop(self, name, *arguments):
        return getattr(self.loop, name)(*arguments)

    def raises(self, error):
        raise error("raised")

    def raise_signal(self, number):
        handled = number in self.loop._signal_handlers
        # During a run asyncio takes a signal a turn earlier if it has just woken itself, which it does more often.
        if not self.loop.is_running() if handled else number == signal.SIGINT:
            signal.raise_signal(number)

    def handler(self, kind):
        def handle(loop, context):
            if self.is_of_a_drop(context.get("message")):
                return
            told = self.told(context.get("message")), *self.error(context.get("exception"))
            called = context.get("handle")
            if isinstance(called, asyncio.Handle) and called.cancelled():
                called = "cancelled"  # what it remembers: see use_handle()
            self.note("reported", kind, *told, sorted(map(str, context)), self.told(called))
            if kind == "stops":
                loop.stop()
            elif kind == "closes":
                loop.close()
            elif error := HANDLERS[kind]:
                raise error("by a handler")

        self.loop.set_exception_handler(None if kind == "default" else handle)

    def factory(self, kind):
        def make(loop, coroutine, **keywords):
            self.note("made", sorted(keywords))
            if kind == "raises":
                raise Plain("no task")
            if kind == "own":
                return self.implementation.Task(coroutine, loop=loop, **keywords)
            coroutine.close()
            return loop.create_future() if kind == "future" else None

        eager = getattr(asyncio, "eager_task_factory", None)
        self.loop.set_task_factory({"none": None, "eager": eager}.get(kind, make))

    def use_handle(self, index, cancels):
        handle = self.handles[index % len(self.handles)]
        if cancels:
            handle.cancel()
        # What hotloop's handle remembers when it is cancelled depends on the debug mode in which it was made.
        return handle.cancelled() or handle, handle.when() > 2**50 if hasattr(handle, "when") else None

    def cancel_task(self, index):
        return self.tasks[index % len(self.tasks)].cancel("a message" if index % 2 else None)

    def end_future(self, index, how):
        future = self.futures[index % 3]
        if how == "cancel":
            return future.cancel()
        return future.set_result(index) if how == "result" else future.set_exception(ERRORS[index]("set"))

    def feed(self, fed):
        one, other = self.ends
        return other.send(b".") if fed else len(one.recv(100, socket.MSG_DONTWAIT))

    def remove_reader(self):
        return self.loop.remove_reader(self.ends[0])

    def drop_generator(self):
        del self.generators[0]

    def close_generator(self):
        coroutine = self.generators[-1].aclose()
        self.tasks.append(self.loop.create_task(coroutine, name="aclose"))

    def end_job(self, index, how):
        job = self.jobs[index % len(self.jobs)]
        if how == "cancel":
            return job.cancel()
        job.set_running_or_notify_cancel()
        if how == "thread":
            return FinishedThread(target=job.set_result, args=(index,)).start()
        return job.set_result(index) if how == "result" else job.set_exception(Plain("a job"))

    def collect(self):
        gc.collect()

    def wait(self, index):
        """Only a task can wait: see script()."""

    # -- from the beginning to the end ---------------------------------------------------------------------------------

    def take_outside(self, one):
        self.turns_left = TURNS
        with contextlib.suppress(BaseException):
            self.take(one)

    def lead(self, program):
        for one in (*program, Step("state"), Step("handler", "note"), Step("run", "forever"), Step("state")):
            self.take_outside(one)
        self.turns_left = TURNS
        try:
            (self.runner or self.loop).close()
        except BaseException as error:
            self.note("closing", *self.error(error))
        self.take_outside(Step("state"))
        self.loop.close()
        self.other.close()
        for end in self.ends:
            end.close()
        # The collector decides in which order it drops the rest, and so what generators that are still open do.
        trace = self.trace.copy()
        self.loop = self.other = self.runner = None
        for things in (self.handles, self.tasks, self.mains, self.futures, self.jobs, self.generators):
            things.clear()
        gc.collect()
        return trace, sorted(self.drops)


def traced(implementation, program, by_runner):
    life = Life(implementation, by_runner)
    logger = logging.getLogger("asyncio")
    handled = [signal.getsignal(number) for number in SIGNALS]
    logger.addFilter(life)
    gc.disable()
    try:
        with (
            warnings.catch_warnings(),
            unittest.mock.patch("sys.unraisablehook", life.unraisable),
            unittest.mock.patch("threading.Thread", FinishedThread),
            unittest.mock.patch("asyncio.tasks.all_tasks", all_tasks_in_order),
        ):
            warnings.simplefilter("always")
            warnings.showwarning = life.warned
            trace = life.lead(program)
        assert [signal.getsignal(number) for number in SIGNALS] == handled
        assert signal.set_wakeup_fd(-1) == -1
        return trace
    finally:
        gc.enable()
        logger.removeFilter(life)


@hypothesis.given(program=programs, by_runner=st.booleans())
def test_any_life_of_a_loop_is_asyncios(load_implementation, impl, program, by_runner):
    actual = traced(impl, program, by_runner)
    assert actual == traced(load_implementation("asyncio"), program, by_runner)
