"""How an asyncio.TaskGroup ends when tasks fail or are cancelled: the compiled one does what asyncio's own does."""

import asyncio
import inspect

import pytest
from support.comparing import BOTH, fail, give, on_both_loops, run_through, same_on_both, turns
from support.same_outcome import description_with_frames, normal, outcome_with_frames
from support.task_groups import CAN_BE_CANCELLED, attributes, ordered

pytestmark = on_both_loops


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("number", [1, 3])
def test_tasks_that_fail(loop, number, after):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                for name in range(number):
                    group.create_task(fail(ValueError(name), after))
                group.create_task(give(1, 20))
                await turns(2)

        task = asyncio.create_task(body())
        return await outcome_with_frames(task), task.cancelling()

    same_on_both(loop, use)


@pytest.mark.parametrize("when", range(6))
@pytest.mark.parametrize("again", [None, 0, 1, 2])
def test_cancelled_parent(loop, when, again):
    async def stubborn():
        try:
            await turns(10)
        except asyncio.CancelledError:
            await turns(3)

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 3))
                group.create_task(stubborn(3))

        task = asyncio.create_task(body())
        await turns(when)
        task.cancel("first")
        if again is not None:
            await turns(again)
            task.cancel("second")
        return await outcome_with_frames(task), task.cancelling()

    same_on_both(loop, use)


def test_cancelled_when_the_last_task_is_done(loop):
    """The group is woken and the parent cancelled in the same turn."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1)).add_done_callback(lambda _: parent.cancel("late"))

        parent = asyncio.create_task(body())
        return await outcome_with_frames(parent), parent.cancelling()

    same_on_both(loop, use)


def test_failure_when_the_last_task_is_done(loop):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                group.create_task(fail(ValueError("x")))

        parent = asyncio.create_task(body())
        return await outcome_with_frames(parent), parent.cancelling()

    same_on_both(loop, use)


@pytest.mark.parametrize("when", range(8))
@pytest.mark.parametrize("event", ["nothing", "cancelled", "cancelled twice", "another fails", "another is created"])
@pytest.mark.parametrize("ending", ["succeeds", "fails", "is cancelled"])
def test_tasks_that_take_long_to_end_after_a_failure(loop, when, event, ending):
    """The parent task is cancelled for the failure, and goes on waiting."""

    async def slow(started):
        try:
            await turns(20)
        except asyncio.CancelledError:
            await turns(started)
            if ending == "succeeds":
                return
            if ending == "fails":
                raise KeyError("slow") from None
            raise

    async def use(module):
        async def body():
            nonlocal group
            async with module.TaskGroup() as group:
                group.create_task(slow(3))
                group.create_task(slow(5))
                group.create_task(fail(ValueError("first"), 1))
                if event == "another fails":
                    group.create_task(fail(TypeError("another"), when))

        group = None
        task = asyncio.create_task(body())
        found = []
        for turn in range(12):
            if turn == when and event.startswith("cancelled"):
                task.cancel("outside")
                if event == "cancelled twice":
                    task.cancel("again")
            if turn == when and event == "another is created":
                coroutine = give(1)
                try:
                    group.create_task(coroutine)
                except Exception as error:
                    found.append(type(error).__name__)
                finally:
                    coroutine.close()
            await turns(1)
            found.append((task.done(), task.cancelling(), group is None or attributes(group)))
        # The traceback is compared, too: description_with_frames() has it.
        return [turn if len(turn) == 2 else (*turn[:2], ordered(turn[2])) for turn in found], await outcome_with_frames(
            task
        )

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("how", ["throw", "close", "drop"])
@pytest.mark.parametrize("before", ["nothing", "cancelled once", "errors are forgotten", "errors are replaced"])
def test_coroutine_of_leaving_by_hand_after_a_failure(loop, error, how, before):
    async def use(module):
        group = module.TaskGroup()
        await group.__aenter__()
        asyncio.current_task().uncancel()
        for number in range(2):
            group.create_task(give(number, 5 + number))
        coroutine = group.__aexit__(None, None, None)
        waited = coroutine.send(None)
        waited._asyncio_future_blocking = False
        found = [waited is group._on_completed_fut]
        group._errors.append(KeyError("first"))
        group._aborting = True
        if before != "nothing":
            waited = coroutine.throw(asyncio.CancelledError())
            waited._asyncio_future_blocking = False
            found += [waited is group._on_completed_fut, attributes(group)]
        if before.startswith("errors"):
            group._errors = [] if before == "errors are forgotten" else "no list"
        try:
            if how == "throw":
                found.append(type(coroutine.throw(error("thrown"))).__name__)
            elif how == "close":
                found.append(coroutine.close())
        except GeneratorExit:
            # Its traceback has no entry of asyncio's coroutine if that was started in the middle.
            found.append("GeneratorExit")
        except BaseException as failure:
            found.append(description_with_frames(failure))
        found += [inspect.getcoroutinestate(coroutine), attributes(group)]
        del coroutine
        await turns(12)
        return [*found, attributes(group)]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_errors_that_end_the_loop(loop, error):
    found = []
    for module in BOTH:

        async def body(module=module):
            async with module.TaskGroup() as group:
                group.create_task(fail(error("x")))
                group.create_task(give(1, 5))

        task = loop.create_task(body())
        ends = run_through(loop, error)
        found.append((ends, description_with_frames(task.exception())))
    assert found[0] == found[1]


def test_parent_that_is_done_already(loop, asyncio_log):
    """A group that another task leaves: a failure is reported, because the parent cannot be cancelled."""

    async def use(module):
        group = module.TaskGroup()

        async def enter():
            await group.__aenter__()
            group.create_task(fail(ValueError("x"), 4))

        await asyncio.create_task(enter())
        await turns(8)
        return normal(repr(group))

    same_on_both(loop, use)
    messages = [normal(message) for message in asyncio_log.take()]
    assert len(messages) == 2
    assert messages[0] == messages[1]


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, asyncio.CancelledError, StopAsyncIteration])
@pytest.mark.parametrize("when", ["unstarted", "waiting", "waiting again"])
@pytest.mark.parametrize("how", ["throw", "close", "drop"])
def test_coroutine_of_leaving_by_hand(loop, error, when, how):
    async def use(module):
        group = module.TaskGroup()
        await group.__aenter__()
        tasks = [group.create_task(give(number, 5 + number)) for number in range(2)]
        coroutine = group.__aexit__(None, None, None)
        found = [inspect.iscoroutine(coroutine), coroutine.__name__, coroutine.__qualname__]
        if when != "unstarted":
            waited = coroutine.send(None)
            found += [waited is group._on_completed_fut, inspect.getcoroutinestate(coroutine)]
        if when == "waiting again":
            try:
                found.append(coroutine.send(None))
            except RuntimeError as failure:
                found.append(str(failure))
        try:
            if how == "throw":
                found.append(type(coroutine.throw(error("thrown"))).__name__)
            elif how == "close":
                found.append(coroutine.close())
        except BaseException as failure:
            # An exception that is thrown into an unstarted compiled coroutine has no traceback entry for it.
            found.append(type(failure).__name__ if when == "unstarted" else description_with_frames(failure))
        if how != "drop":
            found.append(inspect.getcoroutinestate(coroutine))
        found += [attributes(group), [task.cancelling() for task in tasks]]
        if how == "drop" and when == "unstarted":
            coroutine.close()
        del coroutine
        await turns(12)
        return [*found, attributes(group), [await outcome_with_frames(task) for task in tasks]]

    same_on_both(loop, use)


def test_result_of_leaving(loop):
    async def use(module):
        found = []
        for number in range(2):
            group = module.TaskGroup()
            await group.__aenter__()
            for _ in range(number):
                group.create_task(give(1))
            found.append(await group.__aexit__(None, None, None))
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(not CAN_BE_CANCELLED, reason="TaskGroup.cancel() came with CPython 3.15")
@pytest.mark.parametrize("when", ["before", "inside", "waiting", "after"])
def test_cancel_of_the_group(loop, when):
    async def use(module):
        group = module.TaskGroup()

        async def body():
            if when == "before":
                group.cancel()
            async with group:
                group.create_task(give(1, 3))
                if when == "inside":
                    group.cancel()
                if when == "waiting":
                    asyncio.get_running_loop().call_soon(group.cancel)
            if when == "after":
                group.cancel()
            await turns(1)
            return asyncio.current_task().cancelling()

        return await outcome_with_frames(asyncio.create_task(body())), attributes(group)

    same_on_both(loop, use)


async def stubborn(number):
    """A task that takes so many turns to end once it is cancelled."""
    try:
        await turns(20)
    except asyncio.CancelledError:
        await turns(number)


@pytest.mark.parametrize("uncancelled", [False, True])
@pytest.mark.parametrize("fails", [1, 2])
@pytest.mark.parametrize("cancels", ["before", "with", "after", "twice"])
def test_a_failure_and_a_cancellation_from_outside(loop, cancels, fails, uncancelled):
    """Whether the cancellation is lost differs between the versions: python/cpython#155433."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                for name in range(fails):
                    group.create_task(fail(ValueError(name), 3 + name))
                for number in (3, 5):
                    group.create_task(stubborn(number))

        task = asyncio.create_task(body())
        for turn in range(14):
            await turns(1)
            if turn in {"before": [1], "with": [3], "after": [6], "twice": [5, 7]}[cancels]:
                task.cancel(f"outside {turn}")
            if turn == 9 and uncancelled:
                task.uncancel()
        return await outcome_with_frames(task), task.cancelling()

    same_on_both(loop, use)


@pytest.mark.skipif(not CAN_BE_CANCELLED, reason="TaskGroup.cancel() came with CPython 3.15")
@pytest.mark.parametrize("again", [None, "parent", "group", "uncancel"])
@pytest.mark.parametrize("number", [2, 5, 8])
def test_cancel_of_a_group_and_its_parent(loop, number, again):
    async def use(module):
        group = module.TaskGroup()

        async def body():
            async with group:
                group.create_task(stubborn(3))
                group.create_task(give(1, 20))

        task = asyncio.create_task(body())
        for turn in range(14):
            await turns(1)
            if turn == 3:
                group.cancel()
            if turn == number and again is not None:
                {"parent": task.cancel, "group": group.cancel, "uncancel": task.uncancel}[again]()
        return await outcome_with_frames(task), task.cancelling(), attributes(group)

    same_on_both(loop, use)


@pytest.mark.parametrize("errors", [0, 1])
def test_generator_exit_from_the_body(loop, errors):
    """Since CPython 3.15 it leaves the group as it is, if no task has failed."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                for number in range(errors):
                    group.create_task(fail(ValueError(number), 1))
                group.create_task(give(1, 5))
                raise GeneratorExit("body")

        task = asyncio.create_task(body())
        await asyncio.wait([task])
        return description_with_frames(task.exception())

    same_on_both(loop, use)


@pytest.mark.parametrize("waiting", [True, False])
def test_an_asynchronous_generator_that_is_closed_inside_a_group(loop, waiting):
    async def use(module):
        async def generator():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 5 if waiting else 0))
                yield 1
                yield 2

        running = generator()
        assert await anext(running) == 1
        return await outcome_with_frames(running.aclose())

    same_on_both(loop, use)


@pytest.mark.parametrize("eager", [False, True])
def test_a_task_that_cancels_its_group(loop, eager):
    """Since CPython 3.15 also one that does so before create_task() has returned."""
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("eager tasks came with CPython 3.12")

    async def use(module):
        log = []

        async def child(group):
            group._abort()
            try:
                await turns(3)
            except asyncio.CancelledError:
                log.append("cancelled")
                raise

        async def body():
            async with module.TaskGroup() as group:
                group.create_task(child(group))
                log.append([len(group._tasks), await outcome_with_frames(turns(2))])

        loop.set_task_factory(asyncio.eager_task_factory if eager else None)
        try:
            return await outcome_with_frames(asyncio.create_task(body())), log
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.skipif(not hasattr(asyncio.TaskGroup, "_aexit"), reason="_aexit() came with CPython 3.13.2 and 3.14")
@pytest.mark.parametrize("place", ["object", "class"])
def test_an_aexit_that_is_overridden_while_the_group_waits(loop, place):
    async def use(module):
        log = []
        kind = type("TaskGroup", (module.TaskGroup,), {}) if place == "class" else module.TaskGroup
        group = kind()

        async def overriding(*arguments):
            log.append(arguments)

        async def body():
            async with group:
                group.create_task(give(1, 4))

        task = asyncio.create_task(body())
        await turns(3)
        (group if place == "object" else kind)._aexit = overriding
        found = await outcome_with_frames(task)
        return found, log, "_aexit" in vars(group)

    same_on_both(loop, use)
