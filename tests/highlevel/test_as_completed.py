"""asyncio.as_completed()'s arguments and result: the compiled one does what asyncio's own does."""

import asyncio
import inspect
import sys

import pytest
from support.comparing import (
    BOTH,
    Awaitable,
    fail,
    give,
    on_both_loops,
    on_hotloop,
    outcome,
    same_on_both,
    turns,
)
from support.iterators import all_in, all_of, raise_, with_iterator
from support.same_outcome import normal, shown

import hotloop.asyncio

pytestmark = on_both_loops


@with_iterator
def test_signature_and_documentation():
    own, compiled = (module.as_completed for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.isfunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


@with_iterator
def test_iterator(loop):
    async def use(module):
        iterator = module.as_completed([give(1), give(2)], timeout=60)
        found = [
            type(iterator).__name__,
            type(iterator).__qualname__,
            type(iterator).__module__,
            isinstance(iterator, asyncio.tasks._AsCompletedIterator),
            iter(iterator) is iterator,
            aiter(iterator) is iterator,
            isinstance(iterator._done, asyncio.Queue),
            type(iterator._timeout_handle).__name__,
            sorted(shown(future) for future in iterator._todo),
            iterator._todo_left,
            getattr(iterator, "_cur_task", None) is asyncio.current_task(),
        ]
        iterator.mark = 1
        coroutine = next(iterator)
        found += [
            coroutine.__qualname__,
            inspect.iscoroutine(coroutine),
            iterator._todo_left,
            await coroutine in (1, 2),
        ]
        coroutine = anext(iterator)
        found += [coroutine.__qualname__, inspect.iscoroutine(coroutine), iterator._todo_left]
        found += [
            type(await coroutine).__name__,
            iterator._todo_left,
            iterator._todo,
            iterator._timeout_handle.cancelled(),
        ]
        for end in (list(iterator), [each async for each in iterator]):
            found.append(end)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, dict.fromkeys, "generator"])
def test_collections(loop, kind):
    async def use(module):
        given = [give(number, number) for number in range(4)]
        given = (each for each in given) if kind == "generator" else kind([*given, given[0]])
        if inspect.iscoroutine(given) or (kind == "generator" and sys.version_info < (3, 12)):
            given = list(given)  # asyncio takes any generator for a coroutine
        return await all_of(module.as_completed(given))

    assert same_on_both(loop, use) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize("timeout", [None, 60])
def test_numbers_of_futures(loop, count, timeout):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(count)]
        return await all_of(module.as_completed(futures, timeout=timeout))

    assert same_on_both(loop, use) == list(range(count))


@with_iterator
@pytest.mark.parametrize("count", [0, 1, 100])
def test_asynchronous_iteration(loop, count):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(count)]
        found = [each async for each in module.as_completed(futures)]
        return [futures.index(each) for each in found], await all_in(
            module.as_completed([give(1), fail(KeyError(1), 2)])
        )

    assert same_on_both(loop, use)[0] == list(range(count))


def test_all_that_can_be_awaited(loop):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait("item")
        future = asyncio.get_running_loop().create_future()

        async def finish():
            await turns(20)
            future.set_result("future")
            await turns(1)

        given = [give(1, 4), queue.get(), Awaitable(), module.gather(give(2, 10), finish()), future]
        return await all_of(module.as_completed(given))

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "make",
    [lambda: None, lambda: 1, lambda: [1], lambda: (None, None), lambda: "text", lambda: {1: 2}],
    ids=["None", "1", "[1]", "(None, None)", "text", "{1: 2}"],
)
def test_wrong_arguments(loop, make):
    async def use(module):
        try:
            return list(module.as_completed(make()))
        except TypeError as error:
            return str(error)

    same_on_both(loop, use)


def test_generator_with_what_cannot_be_awaited(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        try:
            return list(module.as_completed(each for each in [future, 1]))
        except TypeError as error:
            return str(error), shown(future)

    same_on_both(loop, use)


def test_single_awaitables(loop):
    async def use(module):
        found = []
        for given in (give(1), asyncio.get_running_loop().create_future(), asyncio.ensure_future(give(1))):
            try:
                found.append(list(module.as_completed(given)))
            except TypeError as error:
                found.append(str(error))
            if inspect.iscoroutine(given):
                given.close()
        return found

    same_on_both(loop, use)


def test_generator_that_fails(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()

        def given():
            yield future
            raise ValueError("x")

        try:
            list(module.as_completed(given()))
        except (TypeError, ValueError) as error:
            return type(error), str(error), shown(future)

    same_on_both(loop, use)


def test_generator_that_changes_the_loop(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        made = []

        def factory(loop, coroutine, **keywords):
            made.append(coroutine.__name__)
            return asyncio.Task(coroutine, loop=loop, **keywords)

        def given():
            yield give(1)
            loop.set_task_factory(factory)

        try:
            return await all_of(module.as_completed(given())), made
        except TypeError as error:
            return str(error)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "keywords", [{"timeout": 60}, {"timeout": -1}, {"timeout": "soon"}, {"loop": None}, {"a": 1, "b": 2}]
)
def test_keywords(loop, keywords):
    async def use(module):
        reported = []
        loop.set_exception_handler(lambda loop, context: reported.append(outcome(raise_, context["exception"])))
        future = asyncio.get_running_loop().create_future()
        try:
            found = await all_of(module.as_completed([asyncio.ensure_future(give(1, 0))], **keywords))
        except TypeError as error:
            found = normal(str(error))
        await turns(2)
        return found, shown(future), reported

    same_on_both(loop, use)


def test_by_keyword_and_by_position(loop):
    async def use(module):
        found = [await all_of(module.as_completed(fs=[give(1)]))]
        for arguments in [(), ([], 1), ([], 1, 2)]:
            try:
                module.as_completed(*arguments)
            except TypeError as error:
                found.append(str(error))
        return found

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        try:
            list(module.as_completed([other.create_future()]))
        except ValueError as error:
            return str(error)

    same_on_both(loop, use)
    other.close()


def test_futures_of_other_classes(loop):
    class Own(asyncio.Future):
        pass

    async def use(module):
        loop = asyncio.get_running_loop()
        futures = [make(loop=loop) for make in (Own, asyncio.futures._PyFuture, asyncio.futures._CFuture)]
        for number, future in enumerate(futures):
            loop.call_later(0.002 * number, future.set_result, number)
        return await all_of(module.as_completed(futures))

    assert same_on_both(loop, use) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        coroutine = give(1)
        try:
            asyncio.set_event_loop(loop)
            for each in module.as_completed([coroutine]):
                found.append(loop.run_until_complete(each))
        except RuntimeError as error:
            found.append(str(error))
        finally:
            asyncio.set_event_loop(None)
        coroutine.close()
    assert found[: len(found) // 2] == found[len(found) // 2 :]


@on_hotloop
@with_iterator
def test_it_is_compiled(loop):
    async def use():
        coroutine = next(hotloop.asyncio.as_completed([give(1)]))
        found = type(coroutine).__module__
        return found, await coroutine

    assert loop.run_until_complete(use()) == ("hotloop._c.highlevel.coroutine", 1)
