"""What tools see of asyncio.as_completed(): the compiled one does what asyncio's own does."""

import asyncio
import inspect
import sys
import weakref

import pytest
from support.comparing import (
    give,
    on_both_loops,
    on_hotloop,
    same_on_both,
    turns,
)
from support.garbage import without_collector
from support.iterators import with_iterator

import hotloop.asyncio

pytestmark = on_both_loops


@with_iterator
def test_where_the_task_waits(loop):
    async def use(module):
        iterator = module.as_completed([asyncio.get_running_loop().create_future() for _ in range(2)])
        found = []
        for coroutine in (next(iterator), anext(iterator)):
            task = asyncio.ensure_future(coroutine)
            await turns(1)
            while inspect.iscoroutine(coroutine):
                frame = coroutine.cr_frame
                found.append((coroutine.__qualname__, frame.f_code.co_name, frame.f_lineno, [*frame.f_locals][:1]))
                coroutine = coroutine.cr_await
            task.cancel()
            await turns(2)
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        inner = asyncio.ensure_future(give(1, 4))
        waiter = asyncio.current_task()

        async def look():
            await turns(1)
            graph = asyncio.capture_call_graph(inner)
            (caller,) = graph.awaited_by
            return caller.future is waiter, [entry.frame.f_code.co_name for entry in caller.call_stack]

        looking = asyncio.ensure_future(look())
        for each in module.as_completed([inner]):
            await each
        return await looking, inner._asyncio_awaited_by

    same_on_both(loop, use)


@on_hotloop
@with_iterator
def test_everything_is_freed(loop):
    async def use():
        futures = [loop.create_future() for _ in range(2)]
        iterator = hotloop.asyncio.as_completed(futures)
        known = [weakref.ref(each) for each in (*futures, iterator)]
        for number, future in enumerate(futures):
            future.set_result(number)
        for each in iterator:
            await each
        await turns(1)
        del futures, future, iterator, each
        return [reference() is None for reference in known]

    with without_collector():
        assert loop.run_until_complete(use()) == [True] * 3
