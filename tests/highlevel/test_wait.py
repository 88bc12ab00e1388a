"""asyncio.wait()'s arguments and result: the compiled one does what asyncio's own does."""

import asyncio
import gc
import inspect

import pytest
from support.comparing import BOTH, give, on_both_loops, on_hotloop, outcome_of, same_on_both, turns
from support.same_outcome import normal, shown
from support.waits import WHEN, numbers

import hotloop.asyncio

pytestmark = on_both_loops


def test_signature_and_documentation():
    own, compiled = (module.wait for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.iscoroutinefunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, dict.fromkeys])
@pytest.mark.parametrize("return_when", WHEN)
def test_collections(loop, kind, return_when):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(4)]
        done, pending = result = await module.wait(kind([*futures, futures[0]]), return_when=return_when)
        found = type(result), type(done), type(pending), numbers(futures, result)
        await asyncio.gather(*futures)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("return_when", WHEN)
@pytest.mark.parametrize("timeout", [None, 60, 60.0])
@pytest.mark.parametrize("count", [1, 2, 100, 1000])
def test_numbers_of_futures(loop, count, timeout, return_when):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number % 5)) for number in range(count)]
        await turns(1)
        result = await module.wait(futures, return_when=return_when, timeout=timeout)
        found = numbers(futures, result)
        await asyncio.gather(*futures)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "keywords",
    [
        {"timeout": None},
        {"timeout": 0},
        {"timeout": -1.5},
        {"timeout": 0.001},
        {"timeout": "soon"},
        {"timeout": object},
        {"return_when": "ALL_COMPLETED"},
        {"return_when": "".join(["FIRST_", "COMPLETED"])},
        {"return_when": "never"},
        {"return_when": None},
        {"return_when": asyncio.FIRST_COMPLETED, "timeout": 60},
        {"timeout": 60, "return_when": asyncio.FIRST_EXCEPTION},
        {"loop": None},
        {"timeout": 1, "more": 2},
        {"fs": []},
    ],
)
def test_keywords(loop, keywords):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), asyncio.get_running_loop().create_future()]
        futures[1].set_result(1)
        try:
            return numbers(futures, await module.wait(futures, **keywords))
        except (TypeError, ValueError) as error:
            await futures[0]
            return type(error), normal(str(error))

    same_on_both(loop, use)


def test_by_keyword_and_by_position(loop):
    async def use(module):
        future = asyncio.ensure_future(give(1))
        found = [numbers([future], await module.wait(fs=[future]))]
        for arguments in [(), ([future], 1), ([future], 1, 2)]:
            try:
                module.wait(*arguments)
            except TypeError as error:
                found.append(str(error))
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", ["nothing", "number", "future", "coroutine", "with a coroutine", "with a number"])
def test_wrong_futures(loop, kind):
    async def use(module):
        future, coroutine = asyncio.get_running_loop().create_future(), give(1)
        given = {
            "nothing": [],
            "number": 1,
            "future": future,
            "coroutine": coroutine,
            "with a coroutine": [future, coroutine],
            "with a number": [future, 1],
        }[kind]
        found = await outcome_of(module.wait(given))
        coroutine.close()
        # The future's address decides whether a set has it before the number, and so whether it has got a callback.
        return normal(str(found)), shown(future) if kind != "with a number" else None

    same_on_both(loop, use)


def test_futures_of_other_classes(loop):
    class Own(asyncio.Future):
        pass

    async def use(module):
        futures = [make(loop=loop) for make in (Own, asyncio.futures._PyFuture, asyncio.futures._CFuture)]
        futures += [asyncio.ensure_future(give(1)), module.gather(give(2)), module.shield(give(3))]
        for future in futures[:3]:
            loop.call_soon(future.set_result, 1)
        return [
            numbers(futures, await module.wait(futures)),
            numbers(futures, await module.wait([futures[4], module.gather(give(1))] and futures[3:])),
        ]

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        futures = [loop.create_future(), other.create_future()]
        futures[1].set_result(1)
        return numbers(futures, await module.wait(futures, timeout=0.001))

    same_on_both(loop, use)
    other.run_until_complete(turns(2))
    other.close()


def test_futures_given_are_read_at_the_first_step(loop):
    async def use(module):
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        given = futures[:1]
        coroutine = module.wait(given)
        given.append(futures[1])
        found = numbers(futures, await coroutine)
        given = futures[:2]
        waiting = asyncio.ensure_future(module.wait(given))
        await turns(1)
        given.clear()
        return found, numbers(futures, await waiting)

    assert same_on_both(loop, use) == (([0, 1], []), ([0, 1], []))


def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        future = loop.create_future()
        loop.call_soon(future.set_result, 1)
        found.append(numbers([future], loop.run_until_complete(module.wait([future]))))
        coroutine = module.wait([future])
        try:
            coroutine.send(None)
        except RuntimeError as error:
            found.append(str(error))
    assert found[:2] == found[2:]


def test_never_awaited(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        with pytest.warns(RuntimeWarning) as caught:
            module.wait([future])
            gc.collect()
        module.wait([future]).close()
        return str(caught[0].message), shown(future)

    same_on_both(loop, use)


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        coroutine = hotloop.asyncio.wait([asyncio.ensure_future(give(1))])
        found = type(coroutine).__module__
        await coroutine
        return found

    assert loop.run_until_complete(use()) == "hotloop._c.highlevel.coroutine"
