"""asyncio.as_completed(): order, contexts, debug mode, eager tasks. The compiled one does what asyncio's own does."""

import asyncio
import contextvars
import sys

import pytest
from support.comparing import give, on_both_loops, same_on_both
from support.iterators import all_of

pytestmark = on_both_loops


def test_order(loop):
    async def use(module):
        log = []
        futures = [asyncio.ensure_future(give(number, number)) for number in (0, 1, 3)]

        async def wait():
            for each in module.as_completed(futures):
                log.append(await each)

        task = asyncio.ensure_future(wait())
        for turn in range(10):
            log.append(("turn", turn, task.done()))
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def use(module):
        future = asyncio.get_running_loop().create_future()
        variable.set(1)
        iterator = module.as_completed([future])
        coroutine = next(iter(iterator))
        variable.set(2)
        found = [context[variable] for _, context in future._callbacks]
        future.set_result(1)
        return found, await coroutine

    assert same_on_both(loop, use) == ([1], 1)


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        return await all_of(module.as_completed([give(1), give(2, 3)], timeout=60))

    assert same_on_both(loop, use) == [1, 2]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
def test_eager_tasks(loop):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            return await all_of(module.as_completed([give(1, 0), give(2, 1), give(3, 3)]))
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "call_later", "create_task", "create_future"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append(name)
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await all_of(module.as_completed([give(1), give(2, 3)], timeout=60))
        return found, list(calls)

    assert same_on_both(loop, use)[1]
