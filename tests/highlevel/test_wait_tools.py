"""What tools see of asyncio.wait() and its callbacks: the compiled one does what asyncio's own does."""

import asyncio
import sys
import weakref

import pytest
from support.comparing import give, on_both_loops, on_hotloop, same_on_both, turns
from support.garbage import without_collector
from support.same_outcome import ComparedCallback, normal, shown
from support.waits import awaited, numbers

import hotloop.asyncio

pytestmark = on_both_loops


def test_callback_of_a_future(loop):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        callbacks = [callback for future in futures for callback, _ in future._callbacks]
        found = [
            callbacks[0] is callbacks[1],
            callbacks[0].__qualname__,
            callbacks[0].__module__,
            type(callbacks[0]).__name__,
            [shown(future) for future in futures],
        ]
        callbacks[0](futures[0])
        callbacks[0](futures[0])
        return [*found, await awaited(futures, task), [shown(future) for future in futures]]

    assert same_on_both(loop, use)[-2] == ([], [0, 1])


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_removed_callbacks(loop, removed):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        for future in futures[:removed]:
            future.remove_done_callback(future._callbacks[0][0])
        for future in futures:
            future.set_result(1)
        await turns(3)
        found = task.done()
        task.cancel()
        return found, await awaited(futures, task)

    same_on_both(loop, use)


def test_callbacks_that_compare_by_code_of_the_program(loop):
    async def use(module):
        seen = []
        futures = [loop.create_future() for _ in range(2)]
        futures[0].add_done_callback(ComparedCallback(seen))
        found = await module.wait(futures, timeout=0.001)
        futures[0].set_result(1)
        await turns(1)
        return numbers(futures, found), seen

    same_on_both(loop, use)


@on_hotloop
def test_handles_on_the_ready_queue(loop):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures, return_when=asyncio.FIRST_COMPLETED))
        await turns(1)
        futures[0].set_result(1)
        (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
        found = [normal(repr(handle)), handle._args == (futures[0],)]
        handle.cancel()
        await turns(3)
        found.append(task.done())
        futures[1].set_result(1)
        return [*found, await awaited(futures, task)]

    assert same_on_both(loop, use)[2:] == [False, ([0, 1], [])]


def test_where_the_task_waits(loop):
    """asyncio's _wait() is between."""

    async def use(module):
        coroutine = module.wait([loop.create_future()])
        task = asyncio.ensure_future(coroutine)
        found = [coroutine.cr_frame.f_lineno == asyncio.wait.__code__.co_firstlineno]
        await turns(1)
        inner = coroutine.cr_await
        for waiting in (coroutine, inner):
            frame = waiting.cr_frame
            found += [waiting.__qualname__, frame.f_code.co_name, frame.f_lineno, "fs" in frame.f_locals]
        found += [waiting.cr_code is getattr(asyncio.tasks, waiting.__name__).__code__]
        found += [type(inner.cr_await).__name__, task.get_stack()[-1].f_lineno]
        task.cancel()
        await turns(2)
        return [*found, coroutine.cr_frame, inner.cr_frame]

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
        await module.wait([inner])
        return await looking, inner._asyncio_awaited_by

    same_on_both(loop, use)


@on_hotloop
@pytest.mark.parametrize("end", ["return", "cancel", "look"])
def test_everything_is_freed(loop, end):
    """At once; asyncio's own leaves a cycle from Python 3.14 on."""

    async def use():
        futures = [loop.create_future() for _ in range(2)]
        known = [weakref.ref(future) for future in futures]
        task = asyncio.ensure_future(hotloop.asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED))
        await turns(1)
        known += [weakref.ref(task), weakref.ref(task._fut_waiter)]
        if end == "look" and sys.version_info < (3, 14):
            shown(futures[0])
        if end == "cancel":
            task.cancel()
        else:
            futures[0].set_result(1)
        await turns(3)
        del task, futures
        return [reference() is None for reference in known]

    with without_collector():
        assert loop.run_until_complete(use()) == [True] * 4
