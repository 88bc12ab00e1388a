"""asyncio.gather()'s arguments and result: the compiled one does what asyncio's own does."""

import asyncio
import inspect
import warnings

import pytest
from support.comparing import BOTH, Awaitable, fail, give, on_both_loops, on_hotloop, same_on_both, turns
from support.same_outcome import normal, outcome_with_frames

import hotloop.asyncio

pytestmark = on_both_loops


# -- what it returns ---------------------------------------------------------------------------------------------------


def test_signature_and_documentation():
    own, compiled = (module.gather for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.isfunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


def test_future_that_it_returns(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(give(1), future)
        found = [
            type(outer).__name__,
            isinstance(outer, asyncio.Future),
            isinstance(outer, asyncio.tasks._GatheringFuture),
            asyncio.isfuture(outer),
            outer._children[1] is future,
            len(outer._children),
            outer._cancel_requested,
            outer.get_loop() is asyncio.get_running_loop(),
            normal(repr(outer)),
            outer._callbacks,
        ]
        outer.mark = 1
        found.append(outer.mark)
        future.set_result(2)
        found.append(await outer)
        return [*found, normal(repr(outer)), outer.cancel(), outer._cancel_requested]

    found = same_on_both(loop, use)
    assert found[-4:] == [[1, 2], "<_GatheringFuture finished result=[1, 2]>", False, False]


def test_nothing_to_gather(loop):
    async def use(module):
        outer = module.gather()
        return type(outer).__name__, outer.done(), await outer, await module.gather(return_exceptions=True)

    same_on_both(loop, use)


def test_callback_of_a_child(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        ((callback, context),) = future._callbacks
        found = [
            normal(repr(future)),
            normal(repr(outer._children[1])),
            callback.__qualname__,
            callback.__module__,
            type(callback).__name__,
            type(context).__name__,
            future._callbacks[0][0] is callback,
            outer._children[1]._callbacks[0][0] is callback,
            inspect.signature(callback).parameters.keys(),
        ]
        found += [future.remove_done_callback(callback), future._callbacks]
        found.append(future.remove_done_callback(callback))
        future.add_done_callback(callback)
        future.set_result(2)
        return [*found, await outer]

    assert same_on_both(loop, use)[-1] == [2, 1]


def test_callback_that_is_called_by_the_program(loop):
    """A call of the callback counts, whether the loop or the program makes it."""

    async def use(module):
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        outer = module.gather(*futures)
        callback = futures[1]._callbacks[0][0]
        found = []
        for future in futures:
            future.add_done_callback(lambda _: found.append(outer.done()))
            future.set_result(len(found))
        callback(futures[0])
        return await outer, found

    same_on_both(loop, use)


def test_removed_callback_is_not_called(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        future.remove_done_callback(future._callbacks[0][0])
        future.set_result(1)
        await turns(4)
        found = outer.done()
        outer.set_result("by the program")
        return found, await outer

    assert same_on_both(loop, use) == (False, "by the program")


def test_children_that_the_program_changes(loop):
    async def use(module):
        outer = module.gather(give(1), give(2))
        extra = asyncio.get_running_loop().create_future()
        extra.set_result(3)
        outer._children.append(extra)
        found = [await outer]
        outer = module.gather(give(1, 3), give(2, 3))
        outer._children = [extra]
        found.append(outer.cancel())
        return [*found, await outer]

    assert same_on_both(loop, use) == [[1, 2, 3], False, [1, 2]]


def test_outer_done_before_its_children(loop, asyncio_log):
    async def use(module):
        outer = module.gather(give(1), fail(ValueError("late"), 3))
        outer.set_result("early")
        found = await outer
        children = outer._children
        await turns(5)
        return found, [child._log_traceback for child in children]

    assert same_on_both(loop, use) == ("early", [False, False])


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        outer = hotloop.asyncio.gather(give(1))
        return type(outer).__module__, await outer

    assert loop.run_until_complete(use()) == ("hotloop._c.highlevel.gathering", [1])


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_same_awaitable_several_times(loop):
    async def use(module):
        coroutine, future, task = give(1), asyncio.get_running_loop().create_future(), asyncio.ensure_future(give(3))
        outer = module.gather(coroutine, future, coroutine, task, future, task, *[give(n) for n in range(20)])
        future.set_result(2)
        children = outer._children
        return children[0] is children[2], children[1] is children[4], await outer

    same_on_both(loop, use)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 128, 129, 1000])
def test_number_of_children(loop, count):
    async def use(module):
        coroutines = [give(number) for number in range(count)]
        again = module.gather(*coroutines, coroutines[-1])
        return await again, await module.gather(*[give(number, 0) for number in range(count)])

    assert same_on_both(loop, use)[1] == list(range(count))


def test_awaitables_of_other_kinds(loop):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait("item")
        return await module.gather(Awaitable(1), give(2), queue.get(), asyncio.sleep(0, 3), module.gather(give(4)))

    assert same_on_both(loop, use) == [1, 2, "item", 3, [4]]


@pytest.mark.parametrize("wrong", [None, 1, "text", [], object()])
def test_what_cannot_be_awaited(loop, wrong):
    async def use(module):
        first, last = give(1), give(2)
        try:
            module.gather(first, wrong, last)
        except TypeError as error:
            found = str(error), inspect.getcoroutinestate(first), inspect.getcoroutinestate(last)
        last.close()
        await turns(4)
        return found

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        coroutine = give(1)
        found = []
        for arguments in [(coroutine, other.create_future()), (other.create_future(), coroutine)]:
            try:
                module.gather(*arguments)
            except ValueError as error:
                found.append(str(error))
        coroutine.close()
        await turns(3)
        return found

    same_on_both(loop, use)
    other.close()


@pytest.mark.parametrize(
    "keywords", [{"loop": None}, {"return_exceptions": 1}, {"return_exceptions": []}, {"a": 1, "b": 2}]
)
def test_odd_keywords(loop, keywords):
    async def use(module):
        coroutine = fail(ValueError(1))
        try:
            return normal(str(await outcome_with_frames(module.gather(coroutine, **keywords))))
        except TypeError as error:
            coroutine.close()
            return str(error)

    same_on_both(loop, use)


def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        future = loop.create_future()
        outer = module.gather(future)
        future.set_result(1)
        found.append((loop.run_until_complete(outer), outer.get_loop() is loop))
        coroutine = give(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(module.gather(coroutine))
            except (RuntimeError, ValueError) as error:
                found.append((type(error), str(error)))
            asyncio.set_event_loop(None)
            coroutine.close()
        found.append([(str(warning.message), warning.category) for warning in caught if "awaited" not in str(warning)])
    assert found[: len(found) // 2] == found[len(found) // 2 :]
