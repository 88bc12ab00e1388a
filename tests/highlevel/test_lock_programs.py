"""asyncio's locks in random programs: the compiled ones do what asyncio's own do."""

import asyncio

import hypothesis
from hypothesis import strategies
from support.comparing import outcome, outcome_of, same_on_both, turns
from support.locks import KINDS, cancelled, state
from support.overriding import module_with, overrides
from support.task_programs import TaskPlayer

ACTIONS = ["acquire", "release", "with", "pause", "cancel", "inspect"]
CONDITION_ACTIONS = [*ACTIONS, "with_wait", "wait", "wait_for", "raise_level", "notify", "notify_all", "with_notify"]


def programs_of(actions):
    action = strategies.tuples(strategies.sampled_from(actions), strategies.integers(0, 5))
    return strategies.lists(strategies.lists(action, max_size=8), min_size=1, max_size=6)


class Player(TaskPlayer):
    def __init__(self, lock):
        super().__init__()
        self.lock = lock
        self.level = 0

    async def play(self, program):
        await self.play_tasks(program, 80)
        await self.end_tasks()
        return self.log

    def cancel_tasks(self):
        """A condition's wait() ends only when it has its lock again."""
        super().cancel_tasks()
        self.log.append(outcome(self.lock.release))

    def look(self):
        return (state(self.lock),)

    async def act(self, action, number):
        lock = self.lock
        match action:
            case "acquire" | "wait":
                return await getattr(lock, action)()
            case "with":
                async with lock as held:
                    await turns(number)
                return held
            case "with_wait":
                async with lock:
                    return await lock.wait()
            case "with_notify":
                async with lock:
                    lock.notify(number)
            case "wait_for":
                async with lock:
                    return await lock.wait_for(lambda: self.level >= number)
            case "raise_level":
                self.level += 1
                async with lock:
                    lock.notify_all()
            case "notify":
                return lock.notify(number - 1)
            case "inspect":
                return lock.locked()
            case _:
                return getattr(lock, action)()


random_programs = hypothesis.settings(
    max_examples=120, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)


@random_programs
@hypothesis.given(program=programs_of(ACTIONS), kind=strategies.sampled_from(KINDS), value=strategies.integers(0, 3))
def test_random_programs(loop, program, kind, value):
    async def run(module):
        arguments = (value,) if "Semaphore" in kind else ()
        return await Player(getattr(module, kind)(*arguments)).play(program)

    same_on_both(loop, run)


@random_programs
@hypothesis.given(
    program=programs_of(ACTIONS), kind=strategies.sampled_from(KINDS), value=strategies.integers(0, 3), chosen=overrides
)
def test_random_programs_of_subclasses(loop, program, kind, value, chosen):
    async def run(module):
        calls = []
        changed = module_with(module, calls, {kind: chosen})
        arguments = (value,) if "Semaphore" in kind else ()
        return await Player(getattr(changed, kind)(*arguments)).play(program), calls

    same_on_both(loop, run)


@random_programs
@hypothesis.given(program=programs_of(CONDITION_ACTIONS), shared=strategies.booleans())
def test_random_programs_of_conditions(loop, program, shared):
    async def run(module):
        return await Player(module.Condition(module.Lock()) if shared else module.Condition()).play(program)

    same_on_both(loop, run)


@random_programs
@hypothesis.given(
    program=programs_of(CONDITION_ACTIONS),
    shared=strategies.booleans(),
    chosen=strategies.dictionaries(strategies.sampled_from(["Condition", "Lock"]), overrides, min_size=1),
)
def test_random_programs_of_subclasses_of_conditions(loop, program, shared, chosen):
    async def run(module):
        calls = []
        changed = module_with(module, calls, chosen)
        made = changed.Condition(changed.Lock()) if shared else changed.Condition()
        return await Player(made).play(program), calls

    same_on_both(loop, run)


@random_programs
@hypothesis.given(
    parties=strategies.integers(1, 3),
    program=strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["wait", "wait", "abort", "reset", "cancel"]), strategies.integers(0, 6)
        ),
        max_size=12,
    ),
)
def test_random_programs_of_barriers(loop, parties, program):
    """asyncio's Barrier on a compiled Condition."""

    async def run(module):
        barrier = asyncio.Barrier(parties)
        barrier._cond = module.Condition()
        tasks = []
        log = []

        async def call(name, action):
            found = await outcome_of(getattr(barrier, action)())
            log.append((name, found, barrier.n_waiting, barrier.broken))

        for name, (action, pause) in enumerate(program):
            if action != "cancel":
                tasks.append(asyncio.create_task(call(name, action)))
            elif tasks:
                tasks[pause % len(tasks)].cancel()
            await turns(pause)
        await turns(20)
        await cancelled(*tasks)
        return log, repr(barrier).partition(" at ")[2].partition(" ")[2], state(barrier._cond)

    same_on_both(loop, run)
