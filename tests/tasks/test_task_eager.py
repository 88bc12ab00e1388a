"""Eager tasks: the first step runs inside the constructor."""

import asyncio
import contextvars
import gc
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")

variable = contextvars.ContextVar("variable", default="default")


async def returning(value):
    return value


def inside(loop, function):
    """Call `function` from a coroutine on `loop`, where eager tasks can start."""

    async def main():
        result = function()
        return await result if asyncio.iscoroutine(result) else result

    return loop.run_until_complete(main())


def test_a_coroutine_that_does_not_wait_is_finished_at_once(impl, loop):
    def start():
        task = impl.Task(returning("value"), loop=loop, eager_start=True)
        assert task.done() and task.result() == "value"
        if not (impl.is_oracle and sys.version_info < (3, 12, 2)):  # 3.12.1 crashes on a null pointer here
            assert task.get_coro() is None
        assert task.get_name().startswith("Task-")

    inside(loop, start)


def test_nothing_is_queued_for_a_task_that_finished_eagerly(impl, loop):
    def start():
        before = len(loop._ready)
        impl.Task(returning("value"), loop=loop, eager_start=True)
        assert len(loop._ready) == before

    inside(loop, start)


def test_a_coroutine_that_waits_goes_on_as_usual(impl, loop):
    seen = []

    async def main():
        seen.append("first step")
        await asyncio.sleep(0)
        seen.append("second step")
        return "value"

    async def start():
        task = impl.Task(main(), loop=loop, eager_start=True)
        assert seen == ["first step"] and not task.done()
        assert task in asyncio.all_tasks()
        assert await task == "value"

    inside(loop, start)


def test_the_exception_of_an_eager_step_stays_in_the_task(impl, loop):
    async def failing():
        raise ZeroDivisionError("eager")

    def start():
        task = impl.Task(failing(), loop=loop, eager_start=True)
        assert task.done()
        assert str(task.exception()) == "eager"

    inside(loop, start)


def test_the_current_task_is_the_eager_one_during_its_step_and_the_outer_one_after(impl, loop):
    async def inner():
        return asyncio.current_task()

    async def start():
        outer = asyncio.current_task()
        task = impl.Task(inner(), loop=loop, eager_start=True)
        assert task.result() is task
        assert asyncio.current_task() is outer

    inside(loop, start)


def test_eager_tasks_nest(impl, loop):
    seen = []

    async def nested(depth):
        seen.append((depth, asyncio.current_task().get_name()))
        if depth:
            task = impl.Task(nested(depth - 1), loop=loop, eager_start=True, name=f"depth {depth - 1}")
            assert task.done()
            seen.append((depth, asyncio.current_task().get_name()))

    inside(loop, lambda: impl.Task(nested(3), loop=loop, eager_start=True, name="depth 3"))
    assert seen == [(depth, f"depth {depth}") for depth in (3, 2, 1, 0, 1, 2, 3)]


def test_all_tasks_during_an_eager_step(impl, loop):
    async def inner():
        return asyncio.current_task() in asyncio.all_tasks()

    async def start():
        task = impl.Task(inner(), loop=loop, eager_start=True)
        assert task.result() is True
        assert task not in asyncio.all_tasks()

    inside(loop, start)


def test_the_context_of_an_eager_step_is_a_copy(impl, loop):
    async def inner():
        value = variable.get()
        variable.set("inner")
        return value

    async def start():
        variable.set("outer")
        assert impl.Task(inner(), loop=loop, eager_start=True).result() == "outer"
        assert variable.get() == "outer"
        context = contextvars.Context()
        assert impl.Task(inner(), loop=loop, eager_start=True, context=context).result() == "default"
        assert context[variable] == "inner"

    inside(loop, start)


def test_off_is_the_default(impl, loop):
    def start():
        tasks = [impl.Task(returning(1), loop=loop), impl.Task(returning(1), loop=loop, eager_start=False)]
        assert not any(task.done() for task in tasks)
        return asyncio.wait(tasks)

    inside(loop, start)


def test_the_eager_task_factory(impl, loop):
    async def start():
        loop.set_task_factory(asyncio.create_eager_task_factory(impl.Task))
        task = asyncio.create_task(returning("value"), name="named")
        assert type(task) is impl.Task and task.done() and task.get_name() == "named"
        assert await asyncio.gather(*(returning(number) for number in range(5))) == list(range(5))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(returning(number)) for number in range(5)]
            assert all(task.done() for task in tasks)
        assert [task.result() for task in tasks] == list(range(5))
        waiting = asyncio.create_task(asyncio.sleep(0, "slept"))
        assert not waiting.done()
        return await waiting

    assert loop.run_until_complete(start()) == "slept"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task(eager_start=) came with CPython 3.14")
def test_create_task_takes_eager_start(impl, loop):
    async def start():
        task = asyncio.create_task(returning("value"), eager_start=True)
        assert type(task) is impl.Task and task.done()
        later = asyncio.create_task(returning("value"), eager_start=False)
        assert not later.done()
        nothing_said = asyncio.create_task(returning("value"), eager_start=None)
        assert not nothing_said.done()
        return await later, await nothing_said

    loop.run_until_complete(start())


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task(eager_start=) came with CPython 3.14")
def test_an_eager_step_in_create_task_is_the_new_tasks(impl, loop):
    async def inner():
        variable.set("inner")
        me = asyncio.current_task()
        return me, me in asyncio.all_tasks(), me.get_name()

    async def start():
        outer = asyncio.current_task()
        task = loop.create_task(inner(), name="eager", eager_start=True)
        assert task.result() == (task, True, "eager")
        assert asyncio.current_task() is outer and task not in asyncio.all_tasks()
        assert variable.get() == "default"
        context = contextvars.Context()
        assert loop.create_task(inner(), context=context, eager_start=True).done()
        assert context[variable] == "inner"
        waiting = loop.create_task(asyncio.sleep(0, "slept"), eager_start=True)
        assert not waiting.done() and waiting in asyncio.all_tasks()
        return await waiting

    assert loop.run_until_complete(start()) == "slept"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task(eager_start=) came with CPython 3.14")
def test_a_task_factory_is_told_what_was_said_about_eager_start(impl, loop):
    said = []

    def factory(loop, coroutine, **keywords):
        said.append(keywords.get("eager_start", "nothing"))
        return impl.Task(coroutine, loop=loop, **keywords)

    async def start():
        loop.set_task_factory(factory)
        await loop.create_task(returning(1))
        for value in (True, False, None):
            await loop.create_task(returning(1), eager_start=value)

    loop.run_until_complete(start())
    assert said == ["nothing", True, False, None]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task(eager_start=) came with CPython 3.14")
def test_create_task_starts_nothing_eagerly_on_a_loop_that_does_not_run(impl, loop):
    task = loop.create_task(returning("value"), eager_start=True)
    assert not task.done()
    assert loop.run_until_complete(task) == "value"


def test_eager_start_without_a_running_loop(impl, loop):
    """asyncio's own Task is the oracle: depending on the version it raises, or runs the task later."""

    def outcome(task_class):
        coroutine = returning("value")
        try:
            task = task_class(coroutine, loop=loop, eager_start=True)
        except RuntimeError as error:
            coroutine.close()
            return type(error)
        return task.done(), loop.run_until_complete(task)

    assert outcome(impl.Task) == outcome(asyncio.Task)


def test_cancelled_by_itself_during_its_eager_step(impl, loop):
    async def main():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    async def start():
        task = impl.Task(main(), loop=loop, eager_start=True)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    inside(loop, start)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_eager_step_may_end_the_program(impl, loop, error, asyncio_log):
    async def main():
        raise error

    def start():
        try:
            impl.Task(main(), loop=loop, eager_start=True)
        except error:
            return "raised out of the constructor"

    assert inside(loop, start) == "raised out of the constructor"
    gc.collect()
    # The task has the exception as well, and no code has a reference to the task.
    (message,) = asyncio_log.take()
    assert message.startswith("Task exception was never retrieved")


@pytest.mark.only("c", "python", reason="in asyncio before Python 3.15 the task stays the current one")
@pytest.mark.parametrize("how", ["Task", "factory"])
def test_an_eager_start_that_fails_leaves_no_task(impl, loop, asyncio_log, how):
    """Its context is entered already: the constructor raises, and no task was "destroyed but pending"."""
    if how == "factory" and impl.name == "python":
        pytest.skip("asyncio's factory makes asyncio's tasks there")

    def create(coroutine, context):
        if how == "Task":
            return impl.Task(coroutine, loop=loop, eager_start=True, context=context)
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            return loop.create_task(coroutine, context=context)
        finally:
            loop.set_task_factory(None)

    async def main():
        context, coroutine, this = contextvars.copy_context(), returning("value"), asyncio.current_task()
        with pytest.raises(RuntimeError, match="is already entered"):
            context.run(create, coroutine, context)
        coroutine.close()
        assert asyncio.current_task() is this

    loop.run_until_complete(main())
    gc.collect()
    assert asyncio_log.take() == []
