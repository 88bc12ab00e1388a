"""Programs that change or override parts of asyncio.TaskGroup: the compiled one does what asyncio's own does."""

import asyncio
import gc

import pytest
from support.comparing import fail, give, on_both_loops, same_on_both, turns
from support.same_outcome import outcome_with_frames
from support.task_groups import ATTRIBUTES

pytestmark = on_both_loops


@pytest.mark.parametrize(
    "method", ["__aenter__", "__aexit__", "create_task", "_on_task_done", "_abort", "_is_base_error"]
)
def test_overridden_methods_are_called(loop, method):
    async def use(module):
        calls = []

        class Watched(module.TaskGroup):
            pass

        def watched(self, *arguments, **keywords):
            calls.append((method, len(arguments)))
            return getattr(module.TaskGroup, method)(self, *arguments, **keywords)

        setattr(Watched, method, watched)

        async def body():
            async with Watched() as group:
                group.create_task(give(1))
                group.create_task(fail(ValueError("x"), 3))

        return await outcome_with_frames(asyncio.create_task(body())), calls

    same_on_both(loop, use)


def test_super_calls_of_a_subclass(loop):
    async def use(module):
        class Limited(module.TaskGroup):
            def __init__(self, limit):
                super().__init__()
                self.limit = limit

            def create_task(self, coroutine, **keywords):
                if len(self._tasks) >= self.limit:
                    coroutine.close()
                    return None
                return super().create_task(coroutine, **keywords)

            async def __aexit__(self, *details):
                self.limit = 0
                return await super().__aexit__(*details)

        async with Limited(2) as group:
            tasks = [group.create_task(give(number)) for number in range(4)]
        return [task and task.result() for task in tasks], group.limit, repr(group)

    same_on_both(loop, use)


@pytest.mark.parametrize("place", ["class", "object"])
@pytest.mark.parametrize("method", ["_on_task_done", "_abort"])
def test_methods_that_are_replaced_while_tasks_run(loop, place, method, monkeypatch):
    async def use(module):
        calls = []

        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                original = getattr(group, method)

                def replacement(*arguments):
                    calls.append(len(arguments))
                    return original(*(arguments[1:] if place == "class" else arguments))

                with monkeypatch.context() as patch:
                    patch.setattr(module.TaskGroup if place == "class" else group, method, replacement)
                    group.create_task(give(2))
                    group.create_task(fail(ValueError("x"), 2))
                    await turns(4)
                    await turns(4)

        return await outcome_with_frames(asyncio.create_task(body())), calls

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("when", ["before", "inside", "waiting"])
def test_deleted_attributes(loop, name, when, asyncio_log):
    async def use(module):
        group = module.TaskGroup()
        coroutine = give(1, 4)

        def delete():
            delattr(group, name)

        async def body():
            if when == "before":
                delete()
            async with group:
                group.create_task(coroutine)
                if when == "inside":
                    delete()
                if when == "waiting":
                    asyncio.get_running_loop().call_soon(delete)

        task = asyncio.create_task(body())
        await turns(10)
        task.cancel()
        await turns(10)
        coroutine.close()
        # CPython 3.13 names the module of a class that has the attribute in C.
        return str(task.done() and await outcome_with_frames(task)).replace("asyncio.taskgroups.TaskGroup", "TaskGroup")

    def run(module):
        async def guarded():
            try:
                return await use(module)
            except BaseException as error:
                return type(error).__name__, str(error)

        return guarded()

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()


def test_attributes_that_are_replaced(loop):
    async def use(module):
        class Tasks(set):
            pass

        async with module.TaskGroup() as group:
            group._tasks = Tasks()
            group.create_task(give(1))
            group._errors = []
        async with module.TaskGroup() as other:
            other.create_task(give(1))
            asyncio.get_running_loop().call_soon(setattr, other, "_tasks", Tasks(other._tasks))
        return repr(group), type(group._tasks).__name__, repr(other), type(other._tasks).__name__

    same_on_both(loop, use)


def test_future_that_the_program_sets(loop):
    """What __aexit__() waits for is no secret."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 8))
                asyncio.get_running_loop().call_soon(lambda: group._on_completed_fut.set_result("early"))

        task = asyncio.create_task(body())
        await turns(4)
        found = task.done()
        return found, await outcome_with_frames(task)

    same_on_both(loop, use)
