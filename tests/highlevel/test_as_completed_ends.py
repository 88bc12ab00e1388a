"""How the waits of asyncio.as_completed() end: the compiled one does what asyncio's own does."""

import asyncio
import gc
import inspect

import pytest
from support.comparing import fail, give, on_both_loops, outcome_of, same_on_both, turns
from support.iterators import all_in, all_of
from support.same_outcome import normal, shown

pytestmark = on_both_loops


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x")])
def test_futures_that_fail(loop, error):
    async def use(module):
        futures = [asyncio.ensure_future(each) for each in (give(1), fail(error, 3), give(2, 5))]
        return await all_of(module.as_completed(futures)), [future._log_traceback for future in futures]

    same_on_both(loop, use)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_timeout(loop, asynchronous):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), *(asyncio.get_running_loop().create_future() for _ in range(3))]
        # So long that the first is done before it, on a busy machine, too.
        iterator = module.as_completed(futures, timeout=0.3)
        if asynchronous and hasattr(iterator, "__anext__"):
            found = await all_in(iterator)
        else:
            found = await all_of(iterator)
        futures[1].set_result(1)
        await turns(2)
        return found, [shown(future) for future in futures], getattr(iterator, "_todo_left", None)

    same_on_both(loop, use)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_wait(loop, when, asynchronous):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        iterator = module.as_completed([future, give(1, 2)])
        asynchronous_here = asynchronous and hasattr(iterator, "__anext__")

        async def wait():
            return await (anext(iterator) if asynchronous_here else next(iterator))

        task = asyncio.ensure_future(wait())
        await turns(when)
        found = [task.cancel("why"), getattr(iterator, "_todo_left", None)]
        result = await outcome_of(task)
        found += [type(result) if isinstance(result, asyncio.Future) else result, task.cancelling()]
        future.set_result("late")
        await turns(4)
        found.append(getattr(iterator, "_todo_left", None))
        return [*found, await all_of(iterator) if when < 2 else None]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError("x"), GeneratorExit(), StopIteration(1), KeyboardInterrupt(), None])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_thrown_into(loop, error, asynchronous):
    async def use(module):
        iterator = module.as_completed([asyncio.get_running_loop().create_future() for _ in range(2)])
        is_asynchronous = asynchronous and hasattr(iterator, "__anext__")
        coroutine = iterator.__anext__() if is_asynchronous else next(iterator)
        coroutine.send(None)
        try:
            found = [normal(repr(coroutine.close() if error is None else coroutine.throw(error)))]
        except BaseException as raised:
            found = [type(raised), str(raised), repr(raised.__cause__), repr(raised.__context__)]
        return [*found, getattr(iterator, "_todo_left", None), inspect.getcoroutinestate(coroutine)]

    same_on_both(loop, use)


def test_waits_that_are_never_begun(loop):
    async def use(module):
        with pytest.warns(RuntimeWarning) as caught:
            for each in module.as_completed([give(1)]):
                del each
            gc.collect()
        await turns(3)
        return [str(warning.message) for warning in caught]

    same_on_both(loop, use)


def test_waits_in_any_order(loop):
    async def use(module):
        coroutines = list(module.as_completed([give(number, 2 * number) for number in range(4)]))
        tasks = [asyncio.ensure_future(coroutine) for coroutine in reversed(coroutines)]
        return [await task for task in tasks]

    assert same_on_both(loop, use) == [0, 1, 2, 3]
