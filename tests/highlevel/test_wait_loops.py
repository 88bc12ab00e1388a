"""asyncio.wait(): order, contexts, debug mode and eager tasks. The compiled one does what asyncio's own does."""

import asyncio
import contextvars
import sys

import pytest
from support.comparing import give, on_both_loops, same_on_both, turns
from support.same_outcome import shown
from support.waits import WHEN, numbers

pytestmark = on_both_loops


@pytest.mark.parametrize("return_when", WHEN)
def test_order(loop, return_when):
    async def use(module):
        log = []
        futures = [asyncio.ensure_future(give(number, number)) for number in (0, 1, 1, 2)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: log.append(number))

        async def wait():
            for _ in range(3):
                log.append(numbers(futures, await module.wait(futures, return_when=return_when)))

        task = asyncio.ensure_future(wait())
        for turn in range(12):
            log.append(("turn", turn))
            await asyncio.sleep(0)
        await task
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        variable.set(1)
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        found = [context[variable] for future in futures for _, context in future._callbacks]
        task.cancel()
        return found

    assert same_on_both(loop, use) == [1, 1]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        return numbers(futures, await module.wait(futures, timeout=60))

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
def test_eager_tasks(loop):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            futures = [asyncio.ensure_future(give(number, number)) for number in range(3)]
            task = asyncio.ensure_future(module.wait(futures))
            return shown(futures[2]), task.done(), numbers(futures, await task)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "call_later", "create_future", "call_at"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    class Own(asyncio.Future):
        pass

    def replacement(*arguments, **keywords):
        if name != "create_future":
            calls.append(getattr(arguments[-1], "__qualname__", ""))
            return original(*arguments, **keywords)
        calls.append(name)
        return Own(loop=loop)

    async def use(module):
        calls.clear()
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await module.wait(futures, timeout=60)
        return numbers(futures, found), list(calls)

    assert same_on_both(loop, use)[1]
