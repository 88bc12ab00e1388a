"""How a waiting task is woken: through the loop's call_soon(), as it is when the future is done."""

import asyncio
import sys

import pytest
from support.stepping import run_once


async def waits(future):
    return await future


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio.tasks._enter_task() refuses a loop that does not run")
def test_a_loop_that_passes_everything_on(impl, loop):
    class Passing:
        def __init__(self):
            self.calls = 0

        def __getattr__(self, name):
            return getattr(loop, name)

        def call_soon(self, *arguments, **keywords):
            self.calls += 1
            return loop.call_soon(*arguments, **keywords)

    passing = Passing()
    future = impl.Future(loop=passing)
    task = impl.Task(waits(future), loop=passing)
    run_once(loop)
    future.set_result(1)
    run_once(loop)
    assert task.result() == 1
    assert passing.calls == 2


def test_call_soon_is_replaced_while_a_task_waits(loop):
    calls = []
    future = loop.create_future()
    tasks = [loop.create_task(waits(future)) for _ in range(3)]
    run_once(loop)
    call_soon = loop.call_soon
    loop.call_soon = lambda *arguments, **keywords: (calls.append(arguments), call_soon(*arguments, **keywords))[1]
    future.set_result(1)
    del loop.call_soon
    assert len(calls) == 3
    assert loop.run_until_complete(asyncio.gather(*tasks)) == [1, 1, 1]


def test_debug_mode_is_set_while_a_task_waits(loop):
    future = loop.create_future()
    task = loop.create_task(waits(future))
    run_once(loop)
    loop.set_debug(True)
    future.set_result(1)
    (handle,) = loop._ready
    assert isinstance(handle, asyncio.Handle)
    assert handle._source_traceback
    loop.set_debug(False)
    assert loop.run_until_complete(task) == 1
