"""How asyncio.wait() ends: the compiled one does what asyncio's own does."""

import asyncio
import inspect

import pytest
from support.comparing import fail, give, on_both_loops, outcome_of, same_on_both, turns
from support.same_outcome import normal, shown
from support.waits import WHEN, awaited, numbers

pytestmark = on_both_loops


@pytest.mark.parametrize("return_when", WHEN)
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x")])
def test_futures_that_fail(loop, return_when, error):
    async def use(module):
        futures = [*(asyncio.ensure_future(give(number, number)) for number in (1, 3))]
        futures += [asyncio.ensure_future(fail(error, number)) for number in (2, 4)]
        log = []
        waiting = asyncio.ensure_future(module.wait(futures, return_when=return_when, timeout=60))
        for turn in range(9):
            log.append((turn, waiting.done(), [(shown(future), future._log_traceback) for future in futures]))
            await asyncio.sleep(0)
        for future in futures:
            await outcome_of(future)
        return log, numbers(futures, await waiting)

    same_on_both(loop, use)


@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_waiter(loop, when, timeout):
    async def use(module):
        futures = [asyncio.ensure_future(give(1, 2)), asyncio.get_running_loop().create_future()]
        task = asyncio.ensure_future(module.wait(futures, timeout=timeout))
        await turns(when)
        found = [shown(futures[1]), task.cancel("why"), await awaited(futures, task), shown(futures[1])]
        await futures[0]
        return [*found, task.cancelling(), normal(repr(task))]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError("x"), GeneratorExit(), StopIteration(1), KeyboardInterrupt(), None])
def test_thrown_into(loop, error):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        coroutine = module.wait([future], timeout=60)
        found = [coroutine.send(None) is not future, shown(future), len(loop._scheduled)]
        try:
            found.append(coroutine.close() if error is None else coroutine.throw(error))
        except BaseException as raised:
            found.append((type(raised), str(raised), repr(raised.__cause__), repr(raised.__context__)))
        return [*found, shown(future), inspect.getcoroutinestate(coroutine)]

    same_on_both(loop, use)


@pytest.mark.parametrize("end", ["set_result", "set_exception", "cancel"])
def test_waiter_that_the_program_finishes(loop, end):
    async def use(module):
        futures = [asyncio.get_running_loop().create_future()]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        arguments = {"set_result": [1], "set_exception": [ValueError("x")], "cancel": []}[end]
        getattr(task._fut_waiter, end)(*arguments)
        futures[0].set_result(1)
        return await awaited(futures, task), shown(futures[0])

    same_on_both(loop, use)


def test_timeout(loop):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), *(asyncio.get_running_loop().create_future() for _ in range(2))]
        found = [numbers(futures, await module.wait(futures, timeout=0.001)), [shown(future) for future in futures]]
        return [*found, numbers(futures, await module.wait(futures, timeout=0.001))]

    assert same_on_both(loop, use)[2] == ([0], [1, 2])


def test_timer_ends_with_the_wait(loop):
    async def use(module):
        before = len([timer for timer in loop._scheduled if not timer.cancelled()])
        task = asyncio.ensure_future(module.wait([loop.create_future()], timeout=60))
        await turns(1)
        found = [len([timer for timer in loop._scheduled if not timer.cancelled()]) - before]
        (timer,) = [timer for timer in loop._scheduled if not timer.cancelled()]
        found += [timer._callback.__name__, timer._args == (task._fut_waiter,)]
        task.cancel()
        await turns(2)
        return [*found, timer.cancelled()]

    assert same_on_both(loop, use) == [1, "_release_waiter", True, True]
