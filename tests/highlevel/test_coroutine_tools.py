"""Tracebacks, debug mode, pictures and call graphs show compiled functions' coroutines as they show asyncio's own."""

import asyncio
import gc
import sys
import traceback

import pytest
from support.comparing import BOTH
from support.driven_coroutines import priority_queue
from support.same_outcome import is_debug_build

import hotloop
import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


def test_traceback_of_an_exception_that_passes_through(loop, aio):
    """The traceback names the program's lines, and none of hotloop's own modules."""

    async def main():
        await aio.wait_for(waits(), 10)

    async def waits():
        future = loop.create_future()
        loop.call_soon(future.set_exception, ValueError("on purpose"))
        await future

    with pytest.raises(ValueError) as caught:
        loop.run_until_complete(main())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [name for name in names if name in ("main", "waits")] == ["main", "waits"]
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert is_debug_build() or not [file for file in files if file.endswith(".pyx")]


def test_debug_mode(impl, aio):
    async def main():
        queue = aio.Queue()
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        await queue.put(1)
        return await task, task.get_coro().cr_origin[0][2]

    assert impl.run(main(), debug=True) == (1, "main")


def test_slow_step_in_debug_mode(impl, aio, asyncio_log):
    import time

    async def main():
        asyncio.get_running_loop().slow_callback_duration = 0.01
        await asyncio.create_task(priority_queue(aio, lambda: time.sleep(0.02)).get())

    impl.run(main(), debug=True)
    assert any("PriorityQueue.get()" in message or "Queue.get()" in message for message in asyncio_log.take())


def test_pending_task_that_is_destroyed(loop, asyncio_log):
    async def main(module):
        queue = module.Queue()
        task = asyncio.create_task(queue.get(), name="forgotten")
        await asyncio.sleep(0)
        asyncio.tasks._unregister_task(task)
        queue._getters.clear()
        del task, queue
        await asyncio.sleep(0)
        gc.collect()

    messages = []
    for module in BOTH:
        loop.run_until_complete(main(module))
        messages.append([message.partition(" wait_for")[0] for message in asyncio_log.take()])
    assert messages[0] == messages[1]
    assert "Task was destroyed but it is pending!" in messages[1][0]


def test_coroutine_that_a_trace_function_ends(loop):
    """While a frame is made for it: the next coroutine, which is recycled, shows its own."""

    async def main():
        lock = hotloop.asyncio.Lock()
        await lock.acquire()
        ended = lock.acquire()
        ended.send(None)
        before = sys.gettrace()
        sys.settrace(lambda *_, close=ended.close: close())
        try:
            shown = ended.cr_frame
        finally:
            sys.settrace(before)
        del ended
        waiting = hotloop.asyncio.Queue().get()
        waiting.send(None)
        return shown, waiting.cr_frame.f_code.co_name

    assert loop.run_until_complete(main()) == (None, "get")


@pytest.mark.only("c", reason="asyncio draws its tasks itself")
def test_format_tasks(loop):
    async def main():
        pictures = []
        for module in BOTH:
            queue, event = module.Queue(), module.Event()
            tasks = [
                asyncio.create_task(each, name=f"task {number}")
                for number, each in enumerate((queue.get(), event.wait(), nested(queue)))
            ]
            await asyncio.sleep(0)
            text = hotloop.format_tasks(loop)
            pictures.append([line for line in text.splitlines() if "test_format_tasks.<locals>.main" not in line])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return pictures

    async def nested(queue):
        return await queue.get()

    own, compiled = loop.run_until_complete(main())
    assert [without_addresses(line) for line in own] == [without_addresses(line) for line in compiled]
    assert any("queues.py" in line for line in compiled)


def without_addresses(line):
    import re

    return re.sub(r"0x[0-9a-f]+|main\(\).*", "", line)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with Python 3.14")
def test_call_graph(loop):
    async def main():
        graphs = []
        for module in BOTH:
            queue = module.Queue()
            task = asyncio.create_task(nested(queue), name="a task")
            await asyncio.sleep(0)
            graphs.append([line.strip() for line in asyncio.format_call_graph(task).splitlines()[1:]])
            graph = asyncio.capture_call_graph(task)
            assert [entry.frame.f_code.co_name for entry in graph.call_stack][-2:] == ["get", "nested"]
            task.cancel()
        assert graphs[0] == graphs[1]

    async def nested(queue):
        return await queue.get()

    loop.run_until_complete(main())
