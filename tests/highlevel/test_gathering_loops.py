"""asyncio.gather(): order, contexts, debug mode and kinds of tasks. The compiled one does what asyncio's own does."""

import asyncio
import contextvars
import sys

import pytest
from support.comparing import fail, give, on_both_loops, same_on_both, turns
from support.same_outcome import normal, outcome_with_frames

pytestmark = on_both_loops


def test_order_of_callbacks(loop):
    async def use(module):
        log = []
        asyncio.get_running_loop().call_soon(log.append, "before")
        outer = module.gather(*[give(number, 0) for number in range(3)])
        asyncio.get_running_loop().call_soon(log.append, "after")
        for child in outer._children:
            child.add_done_callback(lambda child: log.append(child.result()))
        outer.add_done_callback(lambda _: log.append("outer"))
        for turn in range(5):
            log.append(("turn", turn, outer.done()))
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def child():
        seen = variable.get()
        variable.set(seen + 1)
        return seen

    async def use(module):
        variable.set(5)
        outer = module.gather(child(), child())
        future = asyncio.get_running_loop().create_future()
        other = module.gather(future)
        variable.set(6)
        ((_, context),) = future._callbacks
        future.set_result(None)
        return [await outer, await other, variable.get(), context[variable]]

    assert same_on_both(loop, use) == [[5, 5], [None], 6, 5]


def test_current_task_in_the_callback(loop):
    """The caller is not the current task any more when gather() is done."""

    async def use(module):
        found = []
        outer = module.gather(give(1), give(2))
        outer.add_done_callback(lambda _: found.append(asyncio.current_task()))
        await outer
        await turns(1)
        return found

    assert same_on_both(loop, use) == [None]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        outer = module.gather(give(1), give(2), fail(ValueError("x")), return_exceptions=True)
        created = [frame.name for frame in outer._source_traceback][-3:]
        return created, normal(str(await outer))

    same_on_both(loop, use)


def test_debug_mode_that_begins_while_children_run(loop):
    async def use(module):
        outer = module.gather(give(1, 2), give(2, 3))
        await turns(1)
        loop.set_debug(True)
        try:
            return await outer
        finally:
            loop.set_debug(False)

    assert same_on_both(loop, use) == [1, 2]


@pytest.mark.parametrize("name", ["call_soon", "create_task"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append(getattr(arguments[0], "__qualname__", ""))
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await module.gather(give(1), give(2))
        return found, list(calls)

    assert len(same_on_both(loop, use)[1]) >= 2


def test_task_factory(loop):
    made = []

    def factory(loop, coroutine, **keywords):
        made.append(keywords)
        return asyncio.Task(coroutine, loop=loop, **keywords)

    async def use(module):
        made.clear()
        loop.set_task_factory(factory)
        try:
            return await module.gather(give(1), give(2)), list(made)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
@pytest.mark.parametrize("return_exceptions", [False, True])
def test_eager_tasks(loop, return_exceptions):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            found = []
            for coroutines in (
                [give(1, 0), give(2, 0)],
                [give(1, 0), give(2, 1)],
                [give(1, 0), fail(ValueError("x"), 0), fail(ValueError("y"), 1)],
            ):
                outer = module.gather(*coroutines, return_exceptions=return_exceptions)
                found += [outer.done(), normal(str(await outcome_with_frames(outer)))]
            await turns(3)
            return found
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


def test_tasks_of_a_subclass(loop):
    class Own(asyncio.Task):
        pass

    async def use(module):
        return await module.gather(Own(give(1)), give(2), Own(give(3), loop=asyncio.get_running_loop()))

    assert same_on_both(loop, use) == [1, 2, 3]
