"""Any program of call_soon, call_later, call_at, cancel, stop and their nesting runs in exactly asyncio's order.

Hypothesis makes the programs. Each runs on the implementation and on asyncio with a clock that only the test moves; the
events, with the turn and the time of each, must be the same. Deadlines are distinct, because asyncio gives equal ones
no order.
"""

import asyncio
import contextlib
import dataclasses

import hypothesis
import hypothesis.strategies as st
import pytest
from support.interpreter import uses_hypothesis
from support.stepping import Clock

pytestmark = [pytest.mark.differential, uses_hypothesis]

TICK = 2**-13  # seconds between deadlines; a power of two; asyncio is early by up to its clock's resolution
MAX_CALLBACKS = 60  # at most in one program, since callbacks may schedule callbacks


@dataclasses.dataclass(frozen=True)
class Operation:
    """One action of a callback; `children` are the actions of the callback that it schedules."""

    kind: str
    number: int = 0
    children: tuple["Operation", ...] = ()


def scheduling(children):
    number = st.integers(0, 5)
    nested = st.tuples() | st.lists(children, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Operation, st.just("call_soon"), number, nested),
        st.builds(Operation, st.just("call_soon_threadsafe"), number, nested),
        st.builds(Operation, st.sampled_from(["call_later", "call_at"]), st.integers(-2, 8), nested),
        st.builds(Operation, st.just("future"), number, nested),
        st.builds(Operation, st.just("task"), number, nested),
    )


plain = st.one_of(
    st.builds(Operation, st.just("cancel"), st.integers(0, 20)),
    st.builds(Operation, st.just("cancel_task"), st.integers(0, 20)),
    st.builds(Operation, st.just("set_result"), st.integers(0, 20)),
    st.builds(Operation, st.sampled_from(["stop", "fail"])),
)
operations = st.recursive(plain, lambda children: plain | scheduling(children), max_leaves=12)
programs = st.lists(operations | scheduling(operations), min_size=1, max_size=10)


class Machine:
    """Runs a program on a loop and records the events."""

    def __init__(self, loop):
        self.loop = loop
        self.clock = Clock.replacing_time_of(loop)
        self.trace = []
        self.turn = 0
        self.made = 0
        self.handles = []
        self.futures = []
        self.tasks = []
        loop.set_exception_handler(self.report)

    def report(self, loop, context):
        self.trace.append((self.turn, "reported", type(context.get("exception")).__name__))

    def next_name(self):
        self.made += 1
        return self.made

    def run(self, operations):
        for operation in operations:
            self.perform(operation)

    def callback(self, name, operations):
        self.trace.append((self.turn, self.clock.now, name))
        self.run(operations)

    async def coroutine(self, name, operation):
        self.trace.append((self.turn, self.clock.now, name, "begins"))
        try:
            for step, child in enumerate(operation.children):
                self.perform(child)
                if operation.number % 2 and self.futures:
                    await self.futures[step % len(self.futures)]
                else:
                    await asyncio.sleep(0)
                self.trace.append((self.turn, name, "after step", step))
        except asyncio.CancelledError:
            self.trace.append((self.turn, name, "cancelled"))
            raise
        return name

    def perform(self, operation):
        if self.made >= MAX_CALLBACKS:
            return
        getattr(self, operation.kind)(operation)

    def call_soon(self, operation):
        self.handles.append(self.loop.call_soon(self.callback, self.next_name(), operation.children))

    def call_soon_threadsafe(self, operation):
        self.handles.append(self.loop.call_soon_threadsafe(self.callback, self.next_name(), operation.children))

    def deadline(self, operation, name):
        return operation.number + name * TICK

    def call_later(self, operation):
        name = self.next_name()
        delay = self.deadline(operation, name)
        self.handles.append(self.loop.call_later(delay, self.callback, name, operation.children))

    def call_at(self, operation):
        name = self.next_name()
        when = self.clock.now + self.deadline(operation, name)
        self.handles.append(self.loop.call_at(when, self.callback, name, operation.children))

    def future(self, operation):
        name = self.next_name()
        future = self.loop.create_future()
        future.add_done_callback(lambda _: self.callback(name, operation.children))
        self.futures.append(future)

    def task(self, operation):
        self.tasks.append(self.loop.create_task(self.coroutine(self.next_name(), operation)))

    def cancel(self, operation):
        if self.handles:
            self.handles[operation.number % len(self.handles)].cancel()

    def cancel_task(self, operation):
        if self.tasks:
            self.trace.append((self.turn, "cancel", self.tasks[operation.number % len(self.tasks)].cancel()))

    def set_result(self, operation):
        pending = [future for future in self.futures if not future.done()]
        if pending:
            pending[operation.number % len(pending)].set_result(operation.number)

    def stop(self, operation):
        self.loop.stop()

    def fail(self, operation):
        raise ZeroDivisionError

    def turn_once(self, advance):
        """Run one iteration; its number and the time go with its events."""
        self.clock.advance(advance)
        self.turn += 1
        self.loop.stop()
        self.loop.run_forever()

    def finish(self):
        """Bring everything to an end, so that nothing is left when the loop closes."""
        self.trace.append("finishing")
        # A callback that runs meanwhile may begin more.
        while len(self.loop._ready) or not all(one.done() for one in [*self.futures, *self.tasks]):
            for one in [*self.futures, *self.tasks]:
                one.cancel()
            self.turn_once(1)
        for handle in self.handles:
            handle.cancel()
        self.trace.append([task.cancelled() or repr(task.exception()) for task in self.tasks])


def in_turns(new_event_loop, program, steps):
    """The trace of a program that is run one iteration at a time."""
    loop = new_event_loop()
    try:
        machine = Machine(loop)
        with contextlib.suppress(ZeroDivisionError):  # the operation "fail" at the top
            machine.run(program)
        for advance in steps:
            machine.turn_once(advance)
            machine.trace.append(("queued", len(loop._ready)))
        machine.finish()
        return machine.trace
    finally:
        loop.close()


@hypothesis.given(
    program=programs, steps=st.lists(st.sampled_from([0, 0, 0.5, 1, 1 + TICK / 2, 3]), min_size=1, max_size=12)
)
def test_every_turn_is_asyncios(impl, program, steps):
    assert in_turns(impl.new_event_loop, program, steps) == in_turns(asyncio.SelectorEventLoop, program, steps)


def in_one_run(new_event_loop, program):
    """The trace of a program that runs until it stops or has nothing left to do, and then runs again to the end.

    Each loop decides, within its bound, when it looks at due timers behind queued work; so the program has no timers.
    """
    loop = new_event_loop()
    try:
        machine = Machine(loop)
        idle = False
        with contextlib.suppress(ZeroDivisionError):  # the operation "fail" at the top
            machine.run(program)

        def when_idle():
            """A canary behind everything that is queued: the run ends once only the canary is left."""
            nonlocal idle
            if len(loop._ready):
                loop.call_soon(when_idle)
            else:
                idle = True
                loop.stop()

        loop.call_soon(when_idle)
        while not idle:
            machine.turn += 1  # here it counts the runs
            loop.run_forever()
        machine.turn = 0  # asyncio's wake-up handle may have cost it one more run, without an event
        machine.finish()
        return machine.trace
    finally:
        loop.close()


def without_timers(operation):
    """The same program with every timer made a plain callback."""
    kind = "call_soon" if operation.kind in ("call_later", "call_at") else operation.kind
    return dataclasses.replace(operation, kind=kind, children=tuple(map(without_timers, operation.children)))


@hypothesis.given(program=programs)
def test_a_whole_run_is_asyncios(impl, program):
    program = [without_timers(operation) for operation in program]
    assert in_one_run(impl.new_event_loop, program) == in_one_run(asyncio.SelectorEventLoop, program)


timer_programs = st.lists(
    st.tuples(st.sampled_from(["set", "set", "set", "cancel", "advance"]), st.integers(0, 30)), min_size=1, max_size=60
)


@hypothesis.given(program=timer_programs)
def test_timers_alone_are_asyncios(impl, program):
    """Long programs of timers only: the heap in all its shapes."""

    def run(new_event_loop):
        loop = new_event_loop()
        clock = Clock.replacing_time_of(loop)
        trace, handles = [], []
        try:
            for step, (kind, number) in enumerate(program):
                if kind == "set":
                    when = clock.now + number + step * TICK
                    handles.append(loop.call_at(when, lambda step=step: trace.append((step, clock.now))))
                elif kind == "cancel" and handles:
                    handles[number % len(handles)].cancel()
                elif kind == "advance":
                    clock.advance(number / 4)
                    loop.stop()
                    loop.run_forever()
                    trace.append("turn")
            clock.advance(1000)
            loop.stop()
            loop.run_forever()
            assert not [handle for handle in loop._scheduled if not handle.cancelled()]
            return trace
        finally:
            loop.close()

    assert run(impl.new_event_loop) == run(asyncio.SelectorEventLoop)
