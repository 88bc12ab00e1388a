"""asyncio.TaskGroup on other loops and in debug mode: the compiled one does what asyncio's own does."""

import asyncio
import sys

import pytest
from support.comparing import BOTH, fail, give, on_both_loops, same_on_both, turns
from support.same_outcome import description_with_frames, outcome_with_frames
from support.task_groups import attributes

pytestmark = on_both_loops


def test_without_a_running_loop_or_task(loop):
    found = []
    for module in BOTH:
        for on_loop in (False, True):
            group = module.TaskGroup()
            coroutine = group.__aenter__()

            def enter(coroutine=coroutine):
                try:
                    coroutine.send(None)
                except RuntimeError as error:
                    found.append(str(error))

            if on_loop:
                loop.call_soon(enter)
                loop.call_soon(loop.stop)
                loop.run_forever()
            else:
                enter()
    assert found[:2] == found[2:]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))
            created = [frame.name for frame in task._source_traceback][-2:]
        return created, task.result()

    same_on_both(loop, use)


def test_debug_mode_that_begins_while_tasks_run(loop):
    async def use(module):
        try:
            async with module.TaskGroup() as group:
                task = group.create_task(give(1, 2))
                await turns(1)
                loop.set_debug(True)
            return task.result(), repr(group)
        finally:
            loop.set_debug(False)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "create_task", "create_future"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append((name, len(arguments), sorted(keywords)))
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                group.create_task(give(1), name="n")
        return list(calls)

    same_on_both(loop, use)


@pytest.mark.parametrize("eager", [False, True])
def test_task_factory(loop, eager):
    if eager and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with CPython 3.12")
    made = []

    def factory(loop, coroutine, **keywords):
        made.append(sorted(keywords))
        return asyncio.Task(coroutine, loop=loop, **keywords, **({"eager_start": True} if eager else {}))

    async def use(module):
        made.clear()
        loop.set_task_factory(factory)
        try:
            async with module.TaskGroup() as group:
                tasks = [group.create_task(give(1, 0)), group.create_task(give(2), name="n")]
            found = [task.result() for task in tasks]
            try:
                async with module.TaskGroup() as group:
                    tasks = [group.create_task(give(1, 2)), group.create_task(fail(ValueError("x"), 0))]
                    found.append(asyncio.current_task().cancelling())
            except* (ValueError, asyncio.CancelledError) as error:
                found.append(description_with_frames(error))
            return [*found, list(made), [task.cancelled() for task in tasks], attributes(group)]
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task() passes keywords on since CPython 3.14")
@pytest.mark.parametrize("eager", [False, True])
def test_eager_start(loop, eager):
    async def use(module):
        async with module.TaskGroup() as group:
            tasks = [group.create_task(give(n, n), eager_start=eager) for n in range(3)]
            found = [task.done() for task in tasks]
        return [*found, [task.result() for task in tasks]]

    same_on_both(loop, use)


@pytest.mark.parametrize("made", ["by the loop", "by asyncio"])
@pytest.mark.parametrize("ending", ["succeeds", "fails", "is cancelled"])
def test_what_awaits_a_task_that_has_ended(loop, made, ending):
    """asyncio's own tasks know it since CPython 3.14."""

    async def use(module):
        found = []

        def look(task):
            known = getattr(task, "_asyncio_awaited_by", None)
            return made == "by asyncio" and known and [each is parent for each in known]

        async def body():
            async with module.TaskGroup() as group:
                tasks = [group.create_task(give(1, 1 + 8 * number)) for number in range(2)]
                tasks.append(group.create_task(fail(ValueError("x"), 4) if ending == "fails" else give(1, 4)))
                for _ in range(5):
                    found.append([look(task) for task in tasks])
                    await turns(1)
                if ending == "is cancelled":
                    tasks[1].cancel()
            found.append([look(task) for task in tasks])

        if made == "by asyncio":
            loop.set_task_factory(lambda loop, coro, **keywords: asyncio.Task(coro, loop=loop, **keywords))
        try:
            parent = loop.create_task(body())
            return await outcome_with_frames(parent), found
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


def test_tasks_of_a_subclass(loop):
    class Own(asyncio.Task):
        pass

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                return group.create_task(give(1)), repr(group)

        task = Own(body(), loop=asyncio.get_running_loop())
        return (await task)[0].result(), (await task)[1]

    same_on_both(loop, use)


def test_order_of_callbacks(loop):
    async def use(module):
        log = []
        async with module.TaskGroup() as group:
            for number in range(3):
                group.create_task(give(number, number)).add_done_callback(
                    lambda task: log.append((task.result(), len(group._tasks), asyncio.current_task()))
                )
            for turn in range(3):
                log.append(("turn", turn, len(group._tasks)))
                await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_leaving_takes_as_many_turns(loop):
    async def use(module):
        log = []

        async def body():
            async with module.TaskGroup() as group:
                for number in range(3):
                    group.create_task(give(number, number))
            log.append("left")

        task = asyncio.create_task(body())
        while not task.done():
            log.append("turn")
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_groups_that_several_runs_use(impl, loop):
    async def use(module):
        group = module.TaskGroup()
        async with group:
            group.create_task(give(1))
        return group

    found = []
    for module in BOTH:
        other = impl.new_event_loop()
        group = other.run_until_complete(use(module))
        other.close()
        found.append(loop.run_until_complete(outcome_with_frames(group.__aenter__())))
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["cancelled", "exception"])
@pytest.mark.parametrize("eager", [False, True])
def test_asyncios_own_tasks_with_a_replaced_method(loop, method, eager):
    """The group believes what it answers: that a task which has failed was cancelled, or has no exception."""
    if eager and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with CPython 3.12")

    async def use(module):
        tasks = []

        def factory(loop, coroutine, **keywords):
            task = asyncio.Task(coroutine, loop=loop, **keywords, **({"eager_start": True} if eager else {}))
            setattr(task, method, lambda: True if method == "cancelled" else None)
            tasks.append(task)
            return task

        loop.set_task_factory(factory)
        try:
            async with module.TaskGroup() as group:
                group.create_task(give(1, 0))
                group.create_task(fail(ValueError("x"), 0))
        finally:
            loop.set_task_factory(None)
        return [repr(asyncio.Task.exception(task)) for task in tasks], attributes(group)

    same_on_both(loop, use)
