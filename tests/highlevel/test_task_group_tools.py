"""What tools see of an asyncio.TaskGroup: the compiled one does what asyncio's own does."""

import asyncio
import contextlib
import contextvars
import gc
import sys
import weakref

import pytest
from support.comparing import fail, give, on_both_loops, on_hotloop, same_on_both, turns
from support.garbage import without_collector
from support.same_outcome import normal

pytestmark = on_both_loops


def test_where_a_task_waits(loop):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 4))

        task = asyncio.create_task(body())
        await turns(2)
        found, coroutine = [], task.get_coro()
        while hasattr(coroutine, "cr_await"):
            frame = coroutine.cr_frame
            found.append(
                (frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno, coroutine.cr_code.co_name)
            )
            coroutine = coroutine.cr_await
        await task
        return found

    same_on_both(loop, use)


@on_hotloop
def test_callbacks_on_the_ready_queue(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        async with module.TaskGroup() as group:
            task = group.create_task(give(1, 0))
            await turns(1)
            (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
            found = [
                normal(repr(handle)),
                handle._callback == group._on_task_done,
                handle._args == (task,),
                handle.cancelled(),
                handle._cancelled,
                handle._loop is loop,
                type(handle.get_context()).__name__,
            ]
            loop._ready.remove(handle)
            handle._run()
            found.append(len(group._tasks))
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        found = []

        async def look(task, parent):
            await turns(1)
            graph = asyncio.capture_call_graph(task)
            found.append([caller.future is parent for caller in graph.awaited_by])
            found.append([entry.frame.f_code.co_name for entry in graph.awaited_by[0].call_stack])
            found.append(task._asyncio_awaited_by == {parent})

        async def body():
            async with module.TaskGroup() as group:
                task = group.create_task(give(1, 4))
                group.create_task(look(task, asyncio.current_task()))
            found.append(task._asyncio_awaited_by)

        await asyncio.create_task(body())
        return found

    same_on_both(loop, use)


def test_everything_is_freed(loop):
    async def use(module):
        known = []

        async def body(coroutine):
            async with module.TaskGroup() as group:
                known.append(weakref.ref(group))
                known.append(weakref.ref(group.create_task(coroutine)))
                known.append(weakref.ref(group.create_task(give(2))))

        await body(give(1))
        await turns(1)
        return [reference() for reference in known]

    with without_collector():
        assert same_on_both(loop, use) == [None] * 3


def test_exceptions_are_freed(loop):
    """Versions of asyncio differ in whether that takes the garbage collector."""

    async def use(module):
        class Error(ValueError):
            pass

        known = []

        async def body():
            error = Error("x")
            known.append(weakref.ref(error))
            try:
                async with module.TaskGroup() as group:
                    group.create_task(fail(error))
                    del error
            except* Error:
                pass

        await asyncio.create_task(body())
        await turns(1)
        without_collector = [reference() is None for reference in known]
        gc.collect()
        return without_collector, [reference() is None for reference in known]

    gc.collect()
    with without_collector():
        same_on_both(loop, use)


def test_unawaited_coroutines_are_reported(loop):
    async def use(module):
        group = module.TaskGroup()
        with pytest.warns(RuntimeWarning) as caught:
            group.__aenter__()
            gc.collect()
        await group.__aenter__()
        with pytest.warns(RuntimeWarning) as again:
            group.__aexit__(None, None, None)
            gc.collect()
        await group.__aexit__(None, None, None)
        return [(str(warning.message), warning.lineno) for warning in [*caught, *again]]

    same_on_both(loop, use)


@pytest.mark.parametrize("end", [give, fail])
def test_a_group_keeps_no_context_of_a_task_that_is_done(loop, end):
    variable = contextvars.ContextVar("variable")

    class Value:
        pass

    async def use(module):
        def create():
            value = Value()
            variable.set(value)
            group.create_task(end(ValueError()))
            return weakref.ref(value)

        found = []
        with contextlib.suppress(ExceptionGroup):
            async with module.TaskGroup() as group:
                reference = contextvars.copy_context().run(create)
                found.append(reference() is None)
                await turns(4)
                found.append(reference() is None)
        found.append(reference() is None)
        return found

    same_on_both(loop, use)
