"""What tools see of asyncio.gather(): the compiled one does what asyncio's own does."""

import asyncio
import gc
import sys
import weakref

import pytest
from support.comparing import fail, give, on_both_loops, on_hotloop, same_on_both, turns
from support.garbage import without_collector
from support.same_outcome import normal

pytestmark = on_both_loops


@on_hotloop
def test_callbacks_on_the_ready_queue(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        outer = module.gather(future, give(1))
        future.set_result(2)
        (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
        found = [
            normal(repr(handle)),
            handle._callback.__qualname__,
            handle._args == (future,),
            handle.cancelled(),
            handle._cancelled,
            handle._loop is loop,
            type(handle.get_context()).__name__,
        ]
        handle.cancel()
        await turns(4)
        return [*found, handle.cancelled(), outer.done()]

    same_on_both(loop, use)


@on_hotloop
def test_handle_that_the_program_runs(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        outer = module.gather(future)
        future.set_result(2)
        loop._ready.pop()._run()
        return outer.done(), await outer

    assert same_on_both(loop, use) == (True, [2])


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        outer = module.gather(give(1, 4), give(2, 5))
        waiter = asyncio.current_task()

        async def look():
            await turns(1)
            graph = asyncio.capture_call_graph(outer._children[0])
            return (
                [entry.frame.f_code.co_name for entry in graph.call_stack],
                [caller.future is waiter for caller in graph.awaited_by],
                outer._children[1]._asyncio_awaited_by == {waiter},
            )

        looking = asyncio.ensure_future(look())
        await outer
        return await looking, outer._children[0]._asyncio_awaited_by

    same_on_both(loop, use)


def test_everything_is_freed(loop):
    async def use(module):
        known = []
        for coroutines in ([give(1), give(2)], [give(1), fail(ValueError("x"))]):
            outer = module.gather(*coroutines, return_exceptions=True)
            await outer
            known += [weakref.ref(outer), *map(weakref.ref, outer._children)]
        del outer
        await turns(1)
        return [reference() for reference in known]

    with without_collector():
        assert same_on_both(loop, use) == [None] * 6


def test_garbage_is_collected(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        known = weakref.ref(outer), weakref.ref(future)
        await turns(4)
        del outer, future
        gc.collect()
        return [reference() for reference in known]

    assert same_on_both(loop, use) == [None, None]
