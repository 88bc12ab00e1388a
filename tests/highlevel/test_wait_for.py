"""asyncio.wait_for(): the compiled one does what asyncio's own does."""

import asyncio
import fractions
import inspect
import sys
import types

import pytest
from support.comparing import outcome, outcome_of, pending_timers, same_on_both, turns
from support.stepping import Clock

import hotloop.asyncio

only_where_compiled = pytest.mark.skipif(sys.version_info < (3, 12), reason="there wait_for() is asyncio's own")


class Awaitable:
    def __init__(self, make):
        self.make = make

    def __await__(self):
        return self.make()


async def returned(value, passing=0):
    await turns(passing)
    return value


async def raised(error, passing=0):
    await turns(passing)
    raise error


@types.coroutine
def generator_coroutine():
    yield
    return "generated"


KINDS = {
    "coroutine": lambda loop: returned("result"),
    "coroutine that waits": lambda loop: returned("result", 3),
    "failing coroutine": lambda loop: raised(ValueError("failed")),
    "failing later": lambda loop: raised(ValueError("failed"), 2),
    "cancelled": lambda loop: raised(asyncio.CancelledError("inside"), 1),
    "compiled coroutine": lambda loop: hotloop.asyncio.sleep(0, "slept"),
    "task": lambda loop: loop.create_task(returned("result", 1)),
    "failing task": lambda loop: loop.create_task(raised(ValueError("failed"), 1)),
    "awaitable": lambda loop: Awaitable(lambda: returned("result", 1).__await__()),
    "generator": lambda loop: generator_coroutine(),
    "no awaitable": lambda loop: 5,
    "none": lambda loop: None,
    "plain generator": lambda loop: (each for each in ()),
    "no iterator": lambda loop: Awaitable(lambda: 5),
    "coroutine from __await__": lambda loop: Awaitable(generator_coroutine),
    "failing __await__": lambda loop: Awaitable(lambda: 1 / 0),
}


@only_where_compiled
@pytest.mark.parametrize("timeout", [None, 100, 100.5, 1e-9, 0, -1, -0.5, True, fractions.Fraction(100), float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_wait_for_any_awaitable(loop, kind, timeout):
    async def use(module):
        return [
            await outcome_of(module.wait_for(KINDS[kind](loop), timeout)),
            await outcome_of(module.wait_for(KINDS[kind](loop), timeout=timeout)),
            asyncio.current_task().cancelling(),
            pending_timers(loop),
        ]

    same_on_both(loop, use)


@only_where_compiled
def test_odd_arguments_of_wait_for(loop):
    async def use(module):
        done = loop.create_future()
        done.set_result("done")
        found = []
        for arguments, keywords in [
            ((), {}),
            ((done,), {}),
            ((done, 1, 2), {}),
            ((done,), {"timeouts": 1}),
            ((), {"fut": done, "timeout": 1}),
            ((), {"timeout": 1, "fut": done}),
            ((done, "x"), {}),
            ((done, float("nan")), {}),
            ((done, 2**70), {}),
            ((done, 2**2000), {}),
        ]:
            made = outcome(module.wait_for, *arguments, **keywords)
            found.append(made if isinstance(made, tuple) else await outcome_of(made))
        return found, pending_timers(loop)

    same_on_both(loop, use)


@only_where_compiled
def test_futures_of_every_kind(impl, loop):
    async def use(module):
        found = []
        for make in (loop.create_future, lambda: asyncio.Future(loop=loop), lambda: impl.Future(loop=loop)):
            for finish in ("result", "exception", "cancel", "nothing"):
                future = make()
                waiting = asyncio.ensure_future(module.wait_for(future, 0.001 if finish == "nothing" else 100))
                await turns(2)
                match finish:
                    case "result":
                        future.set_result(1)
                    case "exception":
                        future.set_exception(KeyError(1))
                    case "cancel":
                        future.cancel("message")
                found += [await outcome_of(waiting), future.cancelled(), pending_timers(loop)]
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_cancelling_a_waiting_task(loop):
    async def use(module):
        found = []
        for passing in range(4):
            future = loop.create_future()
            task = asyncio.ensure_future(module.wait_for(future, 100))
            await turns(passing)
            task.cancel("message")
            if passing == 3 and not future.done():
                future.set_result("in the same turn")
            found += [await outcome_of(task), future.cancelled(), task.cancelling(), pending_timers(loop)]
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_awaited_coroutine_that_swallows_the_cancellation(loop):
    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await turns(2)
            return "stubborn"

    async def use(module):
        task = asyncio.ensure_future(module.wait_for(stubborn(), 1e-9))
        return await outcome_of(task), task.cancelling()

    same_on_both(loop, use)


@only_where_compiled
def test_expires_in_the_turn_of_the_result(loop):
    async def use(module):
        found = []
        clock = Clock.replacing_time_of(loop)
        try:
            for first in (True, False):
                future = loop.create_future()
                if first:
                    loop.call_at(clock.now + 5, future.set_result, "result")
                task = asyncio.ensure_future(module.wait_for(future, 5))
                await turns(2)
                if not first:
                    loop.call_at(clock.now + 5, lambda future=future: future.done() or future.set_result("result"))
                clock.advance(6)
                found += [await outcome_of(task), future.cancelled(), task.cancelling()]
        finally:
            del loop.time
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_coroutine_that_is_awaited_already(loop):
    async def use(module):
        coroutine = returned("result", 5)
        first = asyncio.ensure_future(coroutine)
        await turns(1)
        return await outcome_of(module.wait_for(coroutine, 100)), await first

    same_on_both(loop, use)


@only_where_compiled
def test_driven_by_hand_in_wait_for(loop):
    class Oops(Exception):
        pass

    async def use(module):
        found = []
        for act in (
            lambda c: c.send(None),
            lambda c: c.throw(Oops("thrown")),
            lambda c: c.throw(asyncio.CancelledError("thrown")),
            lambda c: c.throw(GeneratorExit()),
            lambda c: c.close(),
            lambda c: (c.cr_running, c.cr_await is None, c.__qualname__),
        ):
            for steps in range(3):
                body = returned("result", 1)
                coroutine = module.wait_for(body, 100)
                for _ in range(steps):
                    outcome(coroutine.send, None)
                found += [
                    outcome(act, coroutine),
                    inspect.getcoroutinestate(coroutine),
                    inspect.getcoroutinestate(body),
                ]
                coroutine.close()
                body.close()
                found.append(pending_timers(loop))
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_wait_for_is_shown_where_it_waits(loop):
    async def use(module):
        async def outer():
            await module.wait_for(returned("result", 9), 100)

        task = asyncio.ensure_future(outer())
        direct = asyncio.ensure_future(module.wait_for(loop.create_future(), 100))
        await turns(1)
        awaited = task.get_coro().cr_await
        found = [
            (awaited.cr_code.co_name, awaited.cr_frame.f_lineno, awaited.cr_await.__name__),
            [(frame.f_code.co_name, frame.f_lineno) for frame in direct.get_stack()],
        ]
        for each in (task, direct):
            each.cancel()
            await outcome_of(each)
        return found

    same_on_both(loop, use)


if sys.version_info >= (3, 12):

    def test_eager_tasks(loop):
        async def body(module, found):
            async with module.timeout(100) as timeout:
                found.append(timeout._task is asyncio.current_task())
                found.append(await module.wait_for(returned("result", 1), 100))
            return timeout._task

        async def use(module):
            loop.set_task_factory(asyncio.eager_task_factory)
            try:
                found = []
                task = asyncio.ensure_future(body(module, found))
                found.append(task.done())
                return [*found, await task is task, *found[1:]]
            finally:
                loop.set_task_factory(None)

        same_on_both(loop, use)


@pytest.mark.parametrize("timeout", [None, 1])
def test_failure_of_a_future_that_is_done_has_what_is_handled_as_its_context(loop, timeout):
    async def use(module):
        found = []
        for end in (lambda future: future.set_exception(ValueError("failed")), lambda future: future.cancel()):
            future = asyncio.get_running_loop().create_future()
            end(future)
            try:
                raise KeyError("handled")
            except KeyError:
                found.append(await outcome_of(module.wait_for(future, timeout)))
        return found

    assert all("handled" in str(each) for each in same_on_both(loop, use))
