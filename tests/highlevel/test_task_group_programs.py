"""asyncio.TaskGroup in random programs: the compiled one does what asyncio's own does."""

import asyncio
import gc

import hypothesis
from hypothesis import strategies
from support.comparing import on_both_loops, same_on_both, turns
from support.overriding import module_with, overrides
from support.same_outcome import normal, outcome_with_frames
from support.task_groups import CAN_BE_CANCELLED, attributes, ordered

pytestmark = on_both_loops


numbers = strategies.integers(0, 4)
kinds = strategies.sampled_from(["give", "give", "give", "fail", "cancel", "stubborn", "late", "group", "exit"])
tasks_of_a_program = strategies.lists(strategies.tuples(kinds, numbers), max_size=5)
endings = strategies.tuples(strategies.sampled_from(["leave", "leave", "turns", "raise", "cancelled", "wait"]), numbers)
outside = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["turn", "cancel", "uncancel", "cancel_child", "create", "look", "cancel_group"]),
        numbers,
    ),
    max_size=8,
)


class Program:
    """One run of a program: a task with a group, the group's tasks, and what else happens until all are done.

    A group cancels its tasks in the order of a set, so each task has a log of its own, by turns."""

    def __init__(self, module):
        self.module = module
        self.turn = 0
        self.log = []
        self.logs = {}
        self.tasks = []
        self.group = None

    def create(self, group, kind, number):
        coroutine = self.run(len(self.tasks), group, kind, number)
        try:
            self.tasks.append(group.create_task(coroutine, name=f"number {len(self.tasks)}"))
        except RuntimeError as error:
            coroutine.close()
            self.log.append(normal(str(error)))

    async def run(self, name, group, kind, number):
        log = self.logs[name] = []
        try:
            if kind == "group":
                async with self.module.TaskGroup() as inner:
                    self.create(inner, "give", number)
                    self.create(inner, "fail" if number == 3 else "give", 2)
            else:
                await turns(number)
        except asyncio.CancelledError as error:
            log.append((self.turn, "cancelled", error.args))
            if kind != "stubborn":
                raise
            if number % 2:
                raise ValueError("stubborn") from None
        log.append((self.turn, "ends"))
        match kind:
            case "fail":
                raise ValueError(name)
            case "cancel":
                raise asyncio.CancelledError(name)
            case "late":
                self.create(group, "give", number)
            case "exit" if number == 4:
                asyncio.current_task().cancel("itself")
        return name

    async def body(self, kinds, ending):
        how, number = ending
        async with self.module.TaskGroup() as group:
            self.group = group
            for kind in kinds:
                self.create(group, *kind)
            if how in ("turns", "raise", "cancelled"):
                await turns(number)
            if how == "raise":
                raise KeyError("body")
            if how == "cancelled":
                raise asyncio.CancelledError("body")
            if how == "wait":
                await asyncio.get_running_loop().create_future() if number == 4 else await turns(7)
        self.log.append("left")
        await turns(1)
        return "returned"

    async def play(self, kinds, ending, script):
        parent = asyncio.create_task(self.body(kinds, ending), name="parent")
        for action, number in script:
            self.log.append((action, self.act(parent, action, number)))
            if action == "turn":
                await self.pass_turns(number)
        await self.pass_turns(20)
        if not parent.done():
            self.log.append("waits")
            parent.cancel("at the end")
            await self.pass_turns(20)
        self.log += [ordered(await outcome_with_frames(parent)), parent.cancelling(), self.look()]
        self.log += [ordered(await outcome_with_frames(task)) for task in self.tasks]
        return self.log, self.logs

    async def pass_turns(self, number):
        for _ in range(number):
            self.turn += 1
            await asyncio.sleep(0)

    def look(self):
        return self.group and (ordered(attributes(self.group)), normal(repr(self.group)))

    def act(self, parent, action, number):
        match action:
            case "cancel":
                return parent.cancel(f"by {number}")
            case "uncancel":
                return parent.uncancel()
            case "cancel_child" if self.tasks:
                return self.tasks[number % len(self.tasks)].cancel(f"by {number}")
            case "create" if self.group is not None:
                return self.create(self.group, "give", number)
            case "cancel_group" if self.group is not None and CAN_BE_CANCELLED:
                return self.group.cancel()
            case "look":
                return self.look(), parent.cancelling()


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=tasks_of_a_program, ending=endings, script=outside)
def test_random_programs(loop, asyncio_log, kinds, ending, script):
    async def run(module):
        return await Program(module).play(kinds, ending, script)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()


@hypothesis.settings(max_examples=100, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=tasks_of_a_program, ending=endings, script=outside, chosen=overrides)
def test_random_programs_of_subclasses(loop, asyncio_log, kinds, ending, script, chosen):
    async def run(module):
        calls = []
        changed = module_with(module, calls, {"TaskGroup": chosen})
        return await Program(changed).play(kinds, ending, script), sorted(map(str, calls))

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()
