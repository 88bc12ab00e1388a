"""asyncio.TaskGroup's class, attributes and create_task(): the compiled one does what asyncio's own does."""

import asyncio
import contextvars
import inspect

import pytest
from support.comparing import BOTH, fail, give, on_both_loops, on_hotloop, same_on_both, turns
from support.same_outcome import description_with_frames, normal, outcome_with_frames
from support.task_groups import attributes

import hotloop.asyncio

pytestmark = on_both_loops


def test_class():
    own, compiled = (module.TaskGroup for module in BOTH)
    assert own is not compiled
    assert issubclass(compiled, own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    for name in ("__init__", "__aenter__", "__aexit__", "create_task", "_on_task_done"):
        assert inspect.signature(getattr(own, name)) == inspect.signature(getattr(compiled, name))
        assert inspect.iscoroutinefunction(getattr(own, name)) == inspect.iscoroutinefunction(getattr(compiled, name))
    with pytest.raises(TypeError, match="positional argument"):
        compiled(1)


def test_attributes(loop):
    async def use(module):
        group = module.TaskGroup()
        found = [attributes(group), repr(group), group._loop, group._parent_task, group._on_completed_fut]
        async with group as entered:
            found += [entered is group, attributes(group), group._parent_task is asyncio.current_task()]
            task = group.create_task(give(1), name="name")
            found += [task.get_name(), group._tasks == {task}, repr(group), len(group.create_task(give(2))._callbacks)]
        found += [attributes(group), repr(group), group._parent_task is None, group._on_completed_fut]
        return [*found, group._loop is asyncio.get_running_loop()]

    same_on_both(loop, use)


def test_callback_of_a_task(loop):
    async def use(module):
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))
            ((callback, context),) = task._callbacks
            found = [
                normal(repr(task)),
                callback == group._on_task_done,
                callback.__self__ is group,
                callback.__func__ is module.TaskGroup._on_task_done,
                type(context).__name__,
            ]
            found += [task.remove_done_callback(group._on_task_done), task._callbacks]
            task.add_done_callback(group._on_task_done)
        return [*found, repr(group)]

    same_on_both(loop, use)


def test_name_and_context_of_a_task(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def child():
        return variable.get()

    async def use(module):
        context = contextvars.copy_context()
        context.run(variable.set, 7)
        async with module.TaskGroup() as group:
            tasks = [
                group.create_task(child(), name="one"),
                group.create_task(child(), context=context),
                group.create_task(child(), name=None, context=None),
                group.create_task(child(), context=context, name="four"),
                group.create_task(coro=child()),
            ]
            variable.set(8)
            tasks.append(group.create_task(child()))
            contexts = [task._callbacks[0][1].get(variable) for task in tasks]
        return [(normal(task.get_name()), task.result()) for task in tasks], contexts

    same_on_both(loop, use)


@pytest.mark.parametrize("keywords", [{"name": 5}, {"unknown": 1}, {"name": "a", "unknown": 1}])
def test_odd_keywords(loop, keywords, asyncio_log):
    async def use(module):
        coroutine = give(1)
        try:
            async with module.TaskGroup() as group:
                try:
                    return group.create_task(coroutine, **keywords).get_name()
                except Exception as error:
                    return type(error).__name__, str(error)
        except BaseException as error:
            return description_with_frames(error)
        finally:
            await turns(2)
            coroutine.close()

    same_on_both(loop, use)
    asyncio_log.take()


@pytest.mark.parametrize("wrong", [None, 1, "text", asyncio.sleep])
def test_what_is_no_coroutine(loop, wrong):
    async def use(module):
        return await outcome_with_frames(enter(module))

    async def enter(module):
        async with module.TaskGroup() as group:
            group.create_task(wrong)

    same_on_both(loop, use)


def test_when_it_takes_no_tasks(loop):
    async def use(module):
        found = []

        def create(group):
            coroutine = give(1)
            try:
                group.create_task(coroutine)
            except RuntimeError as error:
                found.append((str(error), inspect.getcoroutinestate(coroutine)))
            coroutine.close()

        group = module.TaskGroup()
        create(group)
        async with group:
            pass
        create(group)
        found.append(await outcome_with_frames(group.__aenter__()))
        try:
            async with module.TaskGroup() as group:
                group.create_task(fail(ValueError("x"), 0))
                group.create_task(give(1, 20)).add_done_callback(lambda _: create(group))
                await turns(2)
        except* ValueError:
            create(group)
        return found

    same_on_both(loop, use)


def test_tasks_that_are_created_while_it_waits(loop):
    async def use(module):
        log = []

        async def chain(group, left):
            await turns(1)
            log.append((left, len(group._tasks)))
            if left:
                group.create_task(chain(group, left - 1))

        async with module.TaskGroup() as group:
            group.create_task(chain(group, 4))
        return log, repr(group)

    same_on_both(loop, use)


def test_task_that_is_created_after_the_last_is_done(loop):
    """It is waited for as well: the group looks again when it is woken."""

    async def use(module):
        log = []
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))

            def create(_):
                log.append(len(group._tasks))
                group._tasks.add(asyncio.ensure_future(give(2, 3)))
                next(iter(group._tasks)).add_done_callback(group._on_task_done)

            task.add_done_callback(create)
        return log, repr(group), group._on_completed_fut

    same_on_both(loop, use)


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        async with hotloop.asyncio.TaskGroup() as group:
            task = group.create_task(give(1))
        return task.result(), type(group.create_task.__func__).__name__

    assert loop.run_until_complete(use()) == (1, "CompiledFunction")
