"""An allocation fails while futures end and tasks are cancelled: no crash, and no outcome without a cause."""

import os

import pytest
from support.interpreter import limits_memory

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")

SCRIPT = """
import gc, logging, _testcapi
logging.disable()

async def cancelled_task(arm):
    async def sleeps():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "caught"

    task = asyncio.ensure_future(sleeps())
    await asyncio.sleep(0)
    arm()
    task.cancel("text")
    return await task == "caught"

async def cancelled_future(arm):
    async def waits():
        try:
            await future
        except asyncio.CancelledError:
            return "caught"

    future = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    arm()
    future.cancel("text")
    return await task == "caught"

async def failed_future(arm):
    async def waits():
        try:
            await future
        except ValueError:
            return "caught"

    future = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    arm()
    future.set_exception(ValueError)
    return await task == "caught"

async def waiters(arm):
    async def waits():
        return await future

    future = asyncio.get_running_loop().create_future()
    arm()
    tasks = [asyncio.ensure_future(waits()) for _ in range(4)]
    await asyncio.sleep(0)
    future.set_result(3)
    return await asyncio.gather(*tasks) == [3] * 4

async def callbacks(arm):
    future = asyncio.get_running_loop().create_future()
    arm()
    for callback in (print, repr, id):
        future.add_done_callback(callback)
    removed = future.remove_done_callback(print)
    future.cancel("text")
    try:
        await future
    except asyncio.CancelledError:
        return removed == 1

def child(scenario, allocation):
    loop = impl.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    sys.unraisablehook = lambda unraisable: None
    task = loop.create_task(scenario(lambda: _testcapi.set_nomemory(allocation, allocation + 1)))
    task.add_done_callback(lambda task: loop.stop())
    loop.call_later(0.05, loop.stop)
    while not task.done():
        try:
            loop.run_forever()
            break
        except MemoryError:
            pass
    _testcapi.remove_mem_hooks()
    # What waits for an outcome that got lost, as under asyncio, has been reported.
    return not task.done() or task.cancelled() or task.exception() is not None or task.result()

for scenario in (cancelled_task, cancelled_future, failed_future, waiters, callbacks):
    for allocation in range(1, 45):
        pid = os.fork()
        if pid == 0:
            try:
                right = child(scenario, allocation)
            except MemoryError:
                right = True
            except BaseException:
                right = False
            os._exit(0 if right else 1)
        _, status = os.waitpid(pid, 0)
        if status:
            print(scenario.__name__, allocation, "status", status)
"""


@limits_memory
def test_an_allocation_that_fails(impl):
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    out = impl.run_script("import warnings; warnings.simplefilter('ignore')" + SCRIPT).stdout
    assert out == ""
