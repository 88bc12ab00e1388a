"""asyncio.gather() in random programs: the compiled one does what asyncio's own does."""

import asyncio
import gc

import hypothesis
from hypothesis import strategies
from support.comparing import Awaitable, on_both_loops, same_on_both, turns
from support.same_outcome import normal, outcome_with_frames

pytestmark = on_both_loops


numbers = strategies.integers(0, 4)
children = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["give", "fail", "cancel", "stubborn", "future", "done", "failed", "task", "gather", "again", "awaitable"]
        ),
        numbers,
    ),
    max_size=6,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "cancel", "cancel_child", "finish", "fail", "cancel_future", "look", "remove"]
        ),
        numbers,
    ),
    max_size=10,
)


class Program:
    """One run of a program: a call of gather(), and what else happens until it is done."""

    def __init__(self, module, kinds):
        self.module = module
        self.loop = asyncio.get_running_loop()
        self.log = []
        self.futures = []
        self.given = []
        for kind, number in kinds:
            self.given.append(self.child(kind, number))

    def child(self, kind, number):
        match kind:
            case "give" | "fail" | "cancel" | "stubborn":
                return self.run(len(self.given), kind, number)
            case "task":
                return self.loop.create_task(self.run(len(self.given), "give", number))
            case "future":
                self.futures.append(self.loop.create_future())
                return self.futures[-1]
            case "done":
                future = self.loop.create_future()
                future.set_result(number)
                return future
            case "failed":
                future = self.loop.create_future()
                future.set_exception(KeyError(number))
                return future
            case "gather":
                return self.module.gather(self.run("inner", "give", number), self.child("future", 0))
            case "again":
                return self.given[number % len(self.given)] if self.given else self.child("future", 0)
            case "awaitable":
                return Awaitable(number)

    async def run(self, name, kind, number):
        try:
            await turns(number)
        except asyncio.CancelledError as error:
            self.log.append((name, "cancelled", error.args))
            if kind != "stubborn":
                raise
        self.log.append((name, "ends"))
        if kind == "fail":
            raise ValueError(name)
        if kind == "cancel":
            raise asyncio.CancelledError(name)
        return name

    async def wait(self, outer):
        result = await outcome_with_frames(outer)
        self.log.append(("result", normal(str(result))))

    async def play(self, script, return_exceptions):
        outer = self.module.gather(*self.given, return_exceptions=return_exceptions)
        self.log.append((type(outer).__name__, outer.done(), normal(repr(outer))))
        waiter = self.loop.create_task(self.wait(outer))
        outer.add_done_callback(lambda _: self.log.append("outer is done"))
        for action, number in script:
            self.log.append((action, self.act(outer, action, number)))
            if action == "turn":
                await turns(number)
        for future in self.futures:
            future.cancel("at the end")
        await turns(20)
        if not outer.done():
            outer.set_result("by the program")  # which has removed a callback
            await turns(1)
        self.log.append((waiter.done(), normal(repr(outer)), getattr(outer, "_cancel_requested", None)))
        await waiter
        for future in self.given:
            if isinstance(future, asyncio.Future) and future.done() and not future.cancelled():
                future.exception()
        return self.log

    def act(self, outer, action, number):
        children = getattr(outer, "_children", [])
        match action:
            case "cancel":
                return outer.cancel(f"by {number}")
            case "cancel_child" if children:
                return children[number % len(children)].cancel(f"by {number}")
            case "finish" | "fail" | "cancel_future" if self.futures:
                future = self.futures[number % len(self.futures)]
                if future.done():
                    return None
                if action == "cancel_future":
                    return future.cancel()
                return future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "remove" if number == 0 and self.futures:
                future = self.futures[0]
                return [future.remove_done_callback(callback) for callback, _ in future._callbacks or ()]
            case "look":
                return [normal(repr(child)) for child in children], getattr(outer, "_cancel_requested", None)


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=children, script=actions, return_exceptions=strategies.booleans())
def test_random_programs(loop, asyncio_log, kinds, script, return_exceptions):
    async def run(module):
        return await Program(module, kinds).play(script, return_exceptions)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of exceptions that were not retrieved: see test_gathering_ends.py
