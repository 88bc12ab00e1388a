"""asyncio.eager_task_factory: the loop's own tasks, made as asyncio of the running version makes its own."""

import asyncio
import contextvars
import re
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")

variable = contextvars.ContextVar("variable", default="default")


def named(name):
    """Without the number of a task that was given no name."""
    return re.sub(r"^Task-\d+$", "Task-N", name)


async def same_as_asyncio(scenario, loop):
    """What the scenario returns on this running loop."""
    loop.set_task_factory(asyncio.eager_task_factory)
    assert loop.get_task_factory() is asyncio.eager_task_factory
    return await scenario(loop)


def assert_same(loop, scenario):
    own = asyncio.SelectorEventLoop()
    try:
        own.set_debug(loop.get_debug())
        expected = own.run_until_complete(same_as_asyncio(scenario, own))
    finally:
        own.close()
    assert loop.run_until_complete(same_as_asyncio(scenario, loop)) == expected


KEYWORDS = {
    "none": {},
    "a name": {"name": "given"},
    "a name that is no string": {"name": 5},
    "a name of None": {"name": None},
    "a context": {"context": contextvars.Context()},
    "a context of None": {"context": None},
    "both": {"name": "given", "context": contextvars.Context()},
    "an eager start": {"eager_start": True},
    "no eager start": {"eager_start": False},
    "an eager start of None": {"eager_start": None},
    "an unknown one": {"unknown": 1},
}


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("keywords", KEYWORDS.values(), ids=KEYWORDS)
def test_the_keywords_of_create_task(loop, keywords, debug):
    async def scenario(loop):
        seen = []

        async def observed(rename):
            task = asyncio.current_task()
            seen.append((named(task.get_name()), variable.get(), task in asyncio.all_tasks()))
            if rename:
                task.set_name("its own")
            await asyncio.sleep(0)
            seen.append(named(task.get_name()))

        variable.set("outer")
        for rename in (False, True):
            coroutine = observed(rename)
            try:
                task = loop.create_task(coroutine, **keywords)
            except TypeError as error:
                coroutine.close()
                seen.append(type(error))
            else:
                seen.append((task.done(), named(task.get_name())))
                await task
        return seen

    loop.set_debug(debug)
    assert_same(loop, scenario)


@pytest.mark.only("c", "asyncio", reason="in the pure implementation asyncio's factory makes asyncio's tasks")
def test_the_loops_own_class_of_tasks(impl, loop):
    async def start():
        loop.set_task_factory(asyncio.eager_task_factory)
        without_a_factory = type(asyncio.current_task())
        at_once, later = loop.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(0), name="named")
        assert type(at_once) is type(later) is without_a_factory
        async with asyncio.TaskGroup() as group:
            assert type(group.create_task(asyncio.sleep(0))) is without_a_factory
        await asyncio.gather(at_once, later)

    loop.run_until_complete(start())


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_a_first_step_that_fails(loop, error):
    async def scenario(loop):
        async def failing():
            raise error("at once")

        task = loop.create_task(failing())
        return task.done(), task.cancelled(), repr(await asyncio.gather(task, return_exceptions=True))

    assert_same(loop, scenario)


def test_the_order_of_steps(loop):
    async def scenario(loop):
        seen = []

        async def worker(number, depth):
            seen.append(("begins", number, depth))
            children = [loop.create_task(worker(child, depth - 1)) for child in range(2 if depth else 0)]
            seen.append(("has made", number, depth))
            for turn in range(number):
                await asyncio.sleep(0)
                seen.append((turn, number, depth))
            await asyncio.gather(*children)
            seen.append(("ends", number, depth))

        loop.call_soon(seen.append, "a callback")
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(worker(number, 2))
                seen.append(number)
        return seen

    assert_same(loop, scenario)


def test_what_is_no_coroutine(loop):
    async def scenario(loop):
        try:
            loop.create_task(5)
        except TypeError as error:
            return str(error)

    assert_same(loop, scenario)


def test_a_loop_that_does_not_run_and_one_that_is_closed(loop):
    def outcome(loop):
        loop.set_task_factory(asyncio.eager_task_factory)
        task = loop.create_task(asyncio.sleep(0, "slept"))
        before = task.done()
        result = loop.run_until_complete(task)
        loop.close()
        coroutine = asyncio.sleep(0)
        with pytest.raises(RuntimeError) as caught:
            loop.create_task(coroutine)
        coroutine.close()
        return before, result, str(caught.value)

    assert outcome(loop) == outcome(asyncio.SelectorEventLoop()) == (False, "slept", "Event loop is closed")


def test_another_factory_takes_its_place(loop):
    def by_program(loop, coroutine, **keywords):
        return asyncio.Task(coroutine, loop=loop, **keywords)

    async def returning():
        pass

    async def start():
        done = []
        for factory in (asyncio.eager_task_factory, by_program, asyncio.eager_task_factory, None):
            loop.set_task_factory(factory)
            task = loop.create_task(returning())
            done.append(task.done())
            await task
        return done

    assert loop.run_until_complete(start()) == [True, False, True, False]
