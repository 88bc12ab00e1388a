"""asyncio's timeouts and wait_for() in random programs, in virtual time: the compiled ones do what asyncio's own do."""

import asyncio
import gc

import hypothesis
from hypothesis import strategies
from support.comparing import BOTH, description, outcome_of, pending_timers
from support.overriding import module_with, overrides
from support.virtual_time import virtual_class

DELAYS = strategies.sampled_from([None, -1, 0, 0.0, 1, 1, 2, 2.5, 3, 3, 4, 5.5])
simple_actions = strategies.one_of(
    strategies.tuples(strategies.just("sleep"), strategies.sampled_from([-1, 0, 0, 1, 2, 3, 3.5])),
    strategies.tuples(strategies.sampled_from(["reschedule", "reschedule_at"]), DELAYS),
    strategies.tuples(strategies.just("cancel"), strategies.integers(0, 3)),
    strategies.tuples(
        strategies.sampled_from(["uncancel", "raise", "cancel_self", "look", "group"]), strategies.none()
    ),
)


def blocks(actions):
    inner = strategies.lists(actions, max_size=4)
    return strategies.one_of(
        strategies.tuples(
            strategies.sampled_from(["timeout", "timeout_at", "wait_for", "wait_for_task"]), DELAYS, inner
        ),
        strategies.tuples(strategies.sampled_from(["catch", "shield", "finally"]), strategies.none(), inner),
    )


tasks_of_a_program = strategies.lists(
    strategies.lists(strategies.recursive(simple_actions, blocks, max_leaves=6), max_size=4), min_size=1, max_size=4
)


class Player:
    """One run of a program: several tasks, and a log of what each action gave, in order and with the time."""

    def __init__(self, module):
        self.module = module
        self.log = []
        self.tasks = []
        self.inner = []

    async def play(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        for _ in range(4):
            await asyncio.wait(self.tasks, timeout=20)
            for task in self.tasks:
                task.cancel("at the end")
        while not all(task.done() for task in self.tasks + self.inner):
            for task in self.inner:
                task.cancel("at the end")
            await asyncio.wait(self.tasks + self.inner, timeout=20)
        for task in self.tasks + self.inner:
            self.log.append(("end", task.cancelled(), None if task.cancelled() else description(task.exception())))
        return self.log, pending_timers(asyncio.get_running_loop())

    async def play_task(self, name, actions):
        for number, action in enumerate(actions):
            self.note(name, number, await outcome_of(self.act(name, *action)))

    def note(self, *what):
        self.log.append((round(asyncio.get_running_loop().time(), 3), asyncio.current_task().cancelling(), *what))

    async def block(self, name, actions, timeout=None):
        for number, action in enumerate(actions):
            self.note(name, number, await self.act(name, *action, timeout=timeout), repr(timeout))
        return len(actions)

    async def act(self, name, action, value, inner=(), *, timeout=None):
        module, loop, task = self.module, asyncio.get_running_loop(), asyncio.current_task()
        match action:
            case "sleep":
                return await module.sleep(value, "slept")
            case "reschedule":
                return timeout and timeout.reschedule(value)
            case "reschedule_at":
                return timeout and timeout.reschedule(value and loop.time() + value)
            case "cancel":
                return self.tasks[value % len(self.tasks)].cancel(f"by {name}")
            case "cancel_self":
                return task.cancel("itself")
            case "uncancel":
                return task.uncancel()
            case "raise":
                raise LookupError(name)
            case "group":
                raise BaseExceptionGroup("group", [asyncio.CancelledError(), ValueError()])
            case "look":
                return timeout and (timeout.when(), timeout.expired(), str(timeout))
            case "timeout":
                return await self.within(module.timeout(value), name, inner)
            case "timeout_at":
                return await self.within(module.timeout_at(value and loop.time() + value), name, inner)
            case "wait_for":
                return await module.wait_for(self.block(name, inner), value)
            case "wait_for_task":
                return await module.wait_for(self.begun(name, inner), timeout=value)
            case "catch":
                return await outcome_of(self.block(name, inner, timeout))
            case "shield":
                return await asyncio.shield(self.begun(name, inner))
            case "finally":
                try:
                    return await self.block(name, inner, timeout)
                finally:
                    self.note(name, await module.sleep(1, "finally"))

    def begun(self, name, inner):
        self.inner.append(asyncio.ensure_future(self.block(name, inner)))
        return self.inner[-1]

    async def within(self, timeout, name, inner):
        try:
            async with timeout as entered:
                assert entered is timeout
                return await self.block(name, inner, timeout)
        finally:
            self.note(name, repr(timeout), timeout.expired(), timeout._timeout_handler)


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program)
def test_random_programs(impl, asyncio_log, program):
    own, compiled = (in_virtual_time(impl, Player(module).play(program)) for module in BOTH)
    assert own == compiled
    forget_left_tasks(asyncio_log)


@hypothesis.settings(max_examples=100, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program, chosen=overrides)
def test_random_programs_of_subclasses(impl, asyncio_log, program, chosen):
    def run(module):
        calls = []
        return in_virtual_time(impl, Player(module_with(module, calls, {"Timeout": chosen})).play(program)), calls

    own, compiled = map(run, BOTH)
    assert own == compiled
    forget_left_tasks(asyncio_log)


def forget_left_tasks(asyncio_log):
    """On Python 3.11 a wait_for() that is cancelled twice leaves its task behind."""
    gc.collect()
    asyncio_log.take()


def in_virtual_time(impl, coroutine):
    loop = virtual_class(impl.EventLoop)()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
