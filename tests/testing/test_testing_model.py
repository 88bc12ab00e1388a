"""hotloop.testing against asyncio's own loop: programs of sleeps, timeouts and cancellations, made up by hypothesis.

The oracle is asyncio's loop as it is, on a selector that turns each wait into a step of the clock. So both sides have
exact times, and a loaded machine changes nothing. Every wait has a fraction of its own, so that no two timers are due
at the same time, the order of which asyncio does not define.
"""

import asyncio
import functools
import selectors

import hypothesis
import pytest
from hypothesis import strategies
from support.virtual_time import run_virtual

MOST_STEPS = 3
MOST_TASKS = 4


class SteppingSelector(selectors.DefaultSelector):
    """Never waits: a timeout moves the clock instead."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        assert ready or timeout is not None, "a deadlock"
        if not ready:
            self.now += timeout
        return ready


def run_stepping(main):
    selector = SteppingSelector()

    def factory():
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = lambda: selector.now
        return loop

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


# A step: what to do, for how many whole seconds, and for what comes with it a second number.
steps = strategies.one_of(
    strategies.tuples(strategies.just("sleep"), strategies.integers(0, 5), strategies.just(0)),
    strategies.tuples(strategies.just("wait_for"), strategies.integers(0, 5), strategies.integers(0, 5)),
    strategies.tuples(strategies.just("timeout"), strategies.integers(0, 5), strategies.integers(0, 5)),
    strategies.tuples(strategies.just("call_later"), strategies.integers(0, 5), strategies.just(0)),
    strategies.tuples(strategies.just("cancel"), strategies.integers(0, 5), strategies.integers(0, MOST_TASKS - 1)),
    strategies.tuples(strategies.just("wake"), strategies.integers(0, 5), strategies.just(0)),
    strategies.tuples(strategies.just("wait"), strategies.integers(0, 5), strategies.just(0)),
)
programs = strategies.lists(strategies.lists(steps, min_size=1, max_size=MOST_STEPS), min_size=1, max_size=MOST_TASKS)


class Run:
    """One run of a program, and its trace."""

    def __init__(self, program):
        self.program = program
        self.trace = []

    async def main(self):
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        numbers = iter(range(1000))
        numbered = [[(next(numbers), *step) for step in steps] for steps in self.program]
        self.tasks = [asyncio.create_task(self.walk(name, steps)) for name, steps in enumerate(numbered)]
        await asyncio.wait(self.tasks)
        # What the last timers do, too.
        await asyncio.sleep(1000)
        return self.trace

    def note(self, *what):
        self.trace.append((self.loop.time(), *what))

    async def walk(self, name, steps):
        for number, kind, seconds, other in steps:
            self.note(name, number, kind)
            delay, other_delay = seconds + 2.0 ** -(number + 1), other + 2.0 ** -(number + 13)
            try:
                await getattr(self, kind)(name, number, delay, other_delay)
            except (TimeoutError, asyncio.CancelledError) as error:
                self.note(name, number, type(error).__name__)

    async def sleep(self, name, number, delay, other):
        await asyncio.sleep(delay)

    async def wait_for(self, name, number, delay, other):
        await asyncio.wait_for(asyncio.sleep(other), delay)

    async def timeout(self, name, number, delay, other):
        async with asyncio.timeout(delay):
            await asyncio.sleep(other)
            await asyncio.sleep(0)

    async def call_later(self, name, number, delay, other):
        self.loop.call_later(delay, self.note, name, number, "called")

    async def cancel(self, name, number, delay, other):
        await asyncio.sleep(delay)
        victim = int(other)
        if victim < len(self.tasks) and victim != name:
            self.tasks[victim].cancel()

    async def wake(self, name, number, delay, other):
        await asyncio.sleep(delay)
        self.event.set()
        self.event.clear()

    async def wait(self, name, number, delay, other):
        await asyncio.wait_for(self.event.wait(), delay)


@pytest.mark.parametrize("debug", [False, True], ids=["usual", "debug"])
def test_the_trace_is_that_of_asyncio_in_real_time(impl, debug):
    run = functools.partial(run_virtual, impl, debug=debug)

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(programs)
    def check(program):
        expected = run_stepping(Run(program).main())
        assert run(Run(program).main()) == expected

    check()


def test_a_frozen_clock_gives_the_same_trace(impl):
    """Advanced bit by bit, from beginning to end."""

    async def by_hand(run):
        clock = asyncio.get_running_loop().clock
        clock.freeze()
        main = asyncio.ensure_future(run.main())
        while not main.done():
            await clock.advance(1.75)
        return await main

    @hypothesis.settings(max_examples=30)
    @hypothesis.given(programs)
    def check(program):
        assert run_virtual(impl, by_hand(Run(program))) == run_stepping(Run(program).main())

    check()


def test_under_a_seed_each_task_sees_what_it_saw(impl):
    """No two timers are due at once, so that a seed only changes who goes first of those that were woken together."""

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(programs, strategies.integers(0, 1000))
    def check(program, seed):
        trace = run_virtual(impl, Run(program).main(), shuffle=seed)
        expected = run_stepping(Run(program).main())
        assert sorted(trace) == sorted(expected)

    check()
