"""Programs that change parts of asyncio.as_completed()'s iterator: the compiled one does what asyncio's own does."""

import asyncio

import pytest
from support.comparing import give, on_both_loops, outcome, outcome_of, same_on_both, turns
from support.iterators import raise_, with_iterator
from support.same_outcome import normal

pytestmark = on_both_loops


@with_iterator
@pytest.mark.parametrize("action", ["delete", "replace"])
@pytest.mark.parametrize("name", ["_done", "_timeout_handle", "_todo", "_todo_left", "_cur_task"])
@pytest.mark.parametrize("when", ["first", "between"])
def test_changed_attributes(loop, name, action, when):
    async def use(module):
        reported = []
        loop.set_exception_handler(lambda loop, context: reported.append(outcome(raise_, context["exception"])))
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        iterator = module.as_completed(futures, timeout=60)
        handle = iterator._timeout_handle
        if when == "between":
            futures[2].set_result("first")
            waiting = asyncio.ensure_future(next(iterator))
            await turns(1)
        try:
            if action == "delete":
                delattr(iterator, name)
            else:
                replacement = {"_done": asyncio.Queue(), "_todo": [*iterator._todo], "_todo_left": -1}
                setattr(iterator, name, replacement.get(name))
        except AttributeError:
            pass
        for number, future in enumerate(futures[:2]):
            future.set_result(number)
        found = []
        for take in (lambda: next(iterator), lambda: anext(iterator), lambda: iterator._handle_completion(futures[0])):
            try:
                coroutine = take()
                task = coroutine and asyncio.ensure_future(coroutine)
                await turns(4)
                found.append(normal(repr(task)).split("coro")[0])
                if task:
                    task.cancel()
                    await turns(2)
                    found.append(
                        task.cancelled() or (outcome(raise_, task.exception()) if task.exception() else "result")
                    )
            except Exception as error:
                found.append(outcome(raise_, error))
        if when == "between":
            waiting.cancel()
            await turns(2)
        handle.cancel()
        return found, reported

    same_on_both(loop, use)


@with_iterator
def test_overridden_methods(loop, monkeypatch):
    async def use(module):
        iterator = module.as_completed([give(1), give(2, 3), give(3, 5)])
        found = [await next(iterator)]

        async def wait_for_one(self, resolve=False):
            return "by the program"

        with monkeypatch.context() as patch:
            patch.setattr(type(iterator), "_wait_for_one", wait_for_one)
            found.append(await next(iterator))
        found.append(await next(iterator))
        return found

    assert same_on_both(loop, use) == [1, "by the program", 2]


@with_iterator
def test_callbacks_that_the_program_calls(loop):
    async def use(module):
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        iterator = module.as_completed(futures)
        ((callback, _),) = futures[0]._callbacks
        found = [normal(repr(callback)), callback == iterator._handle_completion, callback.__self__ is iterator]
        futures[0].set_result(1)
        callback(futures[0])
        found += [await next(iterator), len(iterator._todo)]
        found.append(futures[1].remove_done_callback(iterator._handle_completion))
        iterator._handle_timeout()
        return [*found, await outcome_of(next(iterator))]

    same_on_both(loop, use)
