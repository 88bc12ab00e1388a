"""Random programs of tasks, futures, callbacks and contexts: each step sees the same as on asyncio, in the same turn.

Hypothesis makes the programs and shrinks those that differ. A program is a list of scripts; each script is one task's
steps, and the first runs at once. `make differential` looks for new programs for as long as it is told.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import inspect
import itertools
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from support.interpreter import uses_hypothesis

pytestmark = [pytest.mark.differential, uses_hypothesis]

TURNS = 120  # before a program's tasks are cancelled
TASKS = 25  # at most in one program, because tasks make tasks
FUTURES = 4
variable = contextvars.ContextVar("variable", default=0)


def shown(results):
    """Without the texts of InvalidStateErrors: asyncio's own two implementations have different ones."""
    return repr([type(one) if isinstance(one, asyncio.InvalidStateError) else one for one in results])


class Plain(Exception):
    pass


class Keeps(Exception):
    """Refuses a traceback, without an error."""

    def with_traceback(self, traceback):
        return None


class Refuses(Exception):
    """Refuses a traceback, with an error."""

    def with_traceback(self, traceback):
        raise ValueError("no traceback")


class Copies(Exception):
    """Is another object once it has a traceback."""

    def with_traceback(self, traceback):
        return type(self)("a copy")


class Leaves(BaseException):
    """Neither an Exception nor one of the exceptions that end a loop."""


ERRORS = [Plain, Keeps, Refuses, Copies, Leaves, StopIteration, asyncio.CancelledError, TimeoutError]


@dataclasses.dataclass(frozen=True)
class Step:
    kind: str
    number: int = 0
    other: int = 0


def step(*kinds):
    return st.builds(Step, st.sampled_from(kinds), st.integers(0, 9), st.integers(0, 7))


steps = st.one_of(
    step("sleep", "sleep", "future", "task"),
    step("wait_for", "shield", "gather", "gather_errors", "wait_first", "timeout"),
    step("set_result", "set_exception", "cancel_future", "cancel_task", "uncancel", "cancel_self"),
    step("spawn", "spawn", "spawn_eager", "spawn_subclass", "spawn_in_context", "call_soon", "call_later"),
    step("add_callback", "add_equal", "add_never_equal", "add_meddling", "remove_callback"),
    step("set_variable", "read_variable", "result", "exception", "raise", "swallow", "leave"),
    step("patch_call_soon", "unpatch_call_soon", "cancel_handle", "names"),
)
programs = st.lists(st.lists(steps, max_size=8), min_size=1, max_size=5)


class Callback:
    """A callback of futures, which is compared when others are removed."""

    def __init__(self, machine, future, step):
        self.machine, self.future, self.step = machine, future, step

    def __call__(self, future):
        self.machine.note("called back", self.step.number, self.machine.state(future), variable.get())
        if self.step.other == 7:
            raise Plain(f"callback {self.step.number}")


class EqualCallback(Callback):
    def __eq__(self, other):
        return isinstance(other, EqualCallback)

    __hash__ = None


class NeverEqualCallback(Callback):
    def __eq__(self, other):
        return False

    __hash__ = None


class MeddlingCallback(Callback):
    """Changes the future's callbacks, or ends the future, while it is compared."""

    added = 0

    def __eq__(self, other):
        if self.step.other % 2:
            # What is added is compared next: without an end, remove_done_callback() would have none, asyncio's either.
            self.added += 1
            if self.added <= 3:
                self.future.add_done_callback(Callback(self.machine, self.future, Step("added", 99)))
        elif not self.future.done():
            self.future.set_result("compared")
        return True

    __hash__ = None


class Machine:
    """Runs a program on a loop and records what it sees."""

    def __init__(self, loop, task_class, scripts):
        self.loop = loop
        self.scripts = scripts
        self.trace = []
        self.turn = 0
        self.tasks = []
        self.numbers = itertools.count()
        self.handles = []
        self.futures = [loop.create_future() for _ in range(FUTURES)]

        class Subclass(task_class):
            steps_taken = 0

            def own_class(self):
                return self.__class__.steps_taken == 0 and isinstance(self, asyncio.Task)

        self.Task, self.Subclass = task_class, Subclass
        loop.set_exception_handler(self.report)

    def note(self, *what):
        self.trace.append((self.turn, *what))

    def report(self, loop, context):
        self.note("reported", context["message"].split(" ")[:3], repr(type(context.get("exception"))))

    @staticmethod
    def state(future):
        if not future.done():
            return "pending"
        if future.cancelled():
            return "cancelled"
        if isinstance(future.exception(), asyncio.InvalidStateError):
            return "invalid state"  # asyncio's own Future words it differently in C and in Python
        return repr(type(future.exception())), repr(future.exception() or future.result())

    def pick(self, things, number):
        return things[number % len(things)]

    # -- what tasks are made of ----------------------------------------------------------------------------------------

    def spawn(self, step, *, make=None, **keywords):
        # An eager task is not in the list yet when it makes others.
        number = next(self.numbers)
        if number >= TASKS:
            return None
        script = self.pick(self.scripts, step.number)
        coroutine = self.run_script(number, script)
        task = (make or self.loop.create_task)(coroutine, name=f"task {number}", **keywords)
        self.tasks.append(task)
        return task

    def spawn_eager(self, step):
        make = asyncio.create_eager_task_factory(self.Task) if sys.version_info >= (3, 12) else None
        self.spawn(step, make=make and (lambda coroutine, **keywords: make(self.loop, coroutine, **keywords)))

    def spawn_subclass(self, step):
        task = self.spawn(step, make=lambda coroutine, **keywords: self.Subclass(coroutine, loop=self.loop, **keywords))
        if task is not None:
            self.note("own class", task.own_class())

    def spawn_in_context(self, step):
        context = contextvars.copy_context()
        context.run(variable.set, 100 + step.number)
        self.spawn(step, context=context)

    async def run_script(self, number, script):
        self.note(number, "begins", variable.get())
        swallow = False
        for position, step in enumerate(script):
            if step.kind in ("swallow", "leave"):
                swallow = step.kind == "swallow"
                continue
            try:
                await self.take(step)
            except (Exception, asyncio.CancelledError, Leaves) as error:
                # See state().
                text = None if isinstance(error, asyncio.InvalidStateError) else repr(error.args)
                self.note(number, position, step.kind, repr(type(error)), text)
                if not swallow and not isinstance(error, (AttributeError, TypeError)):
                    raise
            else:
                self.note(number, position, step.kind)
        self.note(number, "ends", variable.get())
        return number

    async def take(self, step):
        method = getattr(self, step.kind)
        result = method(step)
        if asyncio.iscoroutine(result):
            await result

    # -- steps that wait -----------------------------------------------------------------------------------------------

    async def sleep(self, step):
        for _ in range(step.other % 3 + 1):
            await asyncio.sleep(0)

    async def future(self, step):
        self.note("result", repr(await self.pick(self.futures, step.number)))

    def some_task(self, step):
        """A task that was made later: two that wait for each other cannot be cancelled, on asyncio either."""
        number = number_of(asyncio.current_task())
        others = [task for task in self.tasks if number_of(task) > number]
        return self.pick(others, step.number) if others else self.futures[0]

    async def task(self, step):
        self.note("result", repr(await self.some_task(step)))

    async def shield(self, step):
        self.note("result", repr(await asyncio.shield(self.pick(self.futures + self.tasks[:1], step.number))))

    async def wait_for(self, step):
        timeout = 0 if step.other % 2 else None
        self.note("result", repr(await asyncio.wait_for(self.pick(self.futures, step.number), timeout)))

    async def timeout(self, step):
        async with asyncio.timeout(0 if step.other % 2 else 1000):
            self.note("result", repr(await self.pick(self.futures, step.number)))

    async def gather(self, step):
        both = (self.pick(self.futures, step.number), self.some_task(step))
        self.note("results", shown(await asyncio.gather(*both, return_exceptions=step.other % 2)))

    async def gather_errors(self, step):
        self.note("results", shown(await asyncio.gather(*self.futures[:2], return_exceptions=True)))

    async def wait_first(self, step):
        both = {self.pick(self.futures, step.number), self.pick(self.futures, step.other)}
        done, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        self.note("waited", len(done), len(pending))

    # -- steps that change something -----------------------------------------------------------------------------------

    def set_result(self, step):
        self.pick(self.futures, step.number).set_result(step.other)

    def set_exception(self, step):
        self.pick(self.futures, step.number).set_exception(self.pick(ERRORS, step.other)("set"))

    def cancel_future(self, step):
        self.note("cancelled", self.pick(self.futures, step.number).cancel("a message" if step.other % 2 else None))

    def cancel_task(self, step):
        if self.tasks:
            task = self.pick(self.tasks, step.number)
            self.note("cancelled", task.cancel("a message" if step.other % 2 else None), task.cancelling())

    def cancel_self(self, step):
        task = asyncio.current_task()
        self.note("cancelled", task.cancel(), task.cancelling())

    def uncancel(self, step):
        self.note("left", asyncio.current_task().uncancel())

    def call_soon(self, step):
        self.handles.append(self.loop.call_soon(self.called, step))

    def call_later(self, step):
        # Due at once or never: two loops need not agree on the moment when a deadline comes.
        self.handles.append(self.loop.call_later(0 if step.other % 2 else 1000, self.called, step))

    def called(self, step):
        self.note("called", step.number, variable.get())
        if step.other == 5:
            raise Plain("a callback")
        if step.other == 6:
            self.spawn(step)

    def cancel_handle(self, step):
        if self.handles:
            handle = self.pick(self.handles, step.number)
            handle.cancel()
            self.note("handle", handle.cancelled())

    def add_callback(self, step, kind=Callback):
        future = self.pick(self.futures, step.number)
        future.add_done_callback(kind(self, future, step))

    def add_equal(self, step):
        self.add_callback(step, EqualCallback)

    def add_never_equal(self, step):
        self.add_callback(step, NeverEqualCallback)

    def add_meddling(self, step):
        self.add_callback(step, MeddlingCallback)

    def remove_callback(self, step):
        future = self.pick(self.futures, step.number)
        callbacks = [callback for callback, _ in future._callbacks or ()]
        chosen = self.pick(callbacks, step.other) if callbacks and step.other < 6 else print
        self.note("removed", future.remove_done_callback(chosen), len(future._callbacks or ()))

    def set_variable(self, step):
        variable.set(step.number)

    def read_variable(self, step):
        self.note("variable", variable.get())

    def result(self, step):
        self.note(repr(self.pick(self.futures + self.tasks, step.number).result()))

    def exception(self, step):
        self.note(repr(self.pick(self.futures + self.tasks, step.number).exception()))

    def names(self, step):
        self.note("names", asyncio.current_task().get_name(), len(asyncio.all_tasks(self.loop)))

    def patch_call_soon(self, step):
        """Replace a method of the running loop's class, as tests with mock.patch.object() do."""
        cls, machine = type(self.loop), self

        def call_soon(self, callback, *args, context=None):
            machine.note("call_soon")
            return super(cls, self).call_soon(callback, *args, context=context)

        cls.call_soon = call_soon

    def unpatch_call_soon(self, step):
        with contextlib.suppress(AttributeError):
            del type(self.loop).call_soon

    def raises(self, step):
        raise self.pick(ERRORS, step.number)("raised")

    # -- from the beginning to the end ---------------------------------------------------------------------------------

    def count_turns(self):
        """Always the first callback of a turn, because it is the first to be queued in the previous one."""
        self.turn += 1
        if self.turn < TURNS and not all(task.done() for task in self.tasks):
            self.loop.call_soon(self.count_turns)
        else:
            self.loop.stop()

    def run(self):
        self.loop.call_soon(self.count_turns)
        self.spawn(Step("spawn", 0))
        self.loop.run_forever()
        self.unpatch_call_soon(None)
        self.trace.append("finish")
        for handle in self.handles:
            handle.cancel()
        for _ in range(TURNS):  # tasks that wait for each other in a circle never end
            unfinished = [one for one in (*self.tasks, *self.futures) if not one.done()]
            if not unfinished:
                break
            for one in unfinished:
                one.cancel()
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        for _ in range(3):  # the callbacks of the last ones to end
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        self.trace.append([self.state(one) for one in (*self.tasks, *self.futures)])
        for task in self.tasks:
            # A callback of the last turn has made it. Python warns of a coroutine that was never awaited.
            if not task.done() and inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED:
                task.get_coro().close()
        return self.trace.copy()  # those that never end are reported when they are collected


setattr(Machine, "raise", Machine.raises)


def number_of(task):
    return int(task.get_name().removeprefix("task "))


def traced(implementation, scripts):
    class Loop(implementation.EventLoop):
        """A class that only this program patches."""

    loop = Loop()
    try:
        return Machine(loop, implementation.Task, scripts).run()
    finally:
        loop.close()


@hypothesis.given(scripts=programs)
def test_any_program_of_tasks_is_asyncios(load_implementation, impl, scripts):
    actual = traced(impl, scripts)
    assert actual == traced(load_implementation("asyncio"), scripts)
