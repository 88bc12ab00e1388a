"""An allocation fails in Condition.wait(): it ends with the lock held, and leaves no waiter behind."""

import pytest
from support.comparing import on_both_loops
from support.interpreter import limits_memory

SCRIPT = """
import collections, _testcapi
import hotloop.asyncio

async def wait(condition):
    async with condition:
        await condition.wait()

async def failed_wait(module, allocation):
    condition = module.Condition()
    # One more needs another block of the deque, and these deques have all the blocks that were freed.
    tasks = [asyncio.create_task(wait(condition)) for _ in range(32)]
    kept = [collections.deque() for _ in range(100)]
    await asyncio.sleep(0)
    async with condition:
        waiting = condition.wait()
        _testcapi.set_nomemory(allocation, allocation + 1)
        try:
            waiting.send(None)
        except MemoryError:
            _testcapi.remove_mem_hooks()
            found = condition.locked(), len(condition._waiters)
        else:
            _testcapi.remove_mem_hooks()
            found = None
            waiting.close()
        for task in tasks:
            task.cancel()
    await asyncio.wait(tasks)
    return found

async def failures(module):
    return {await failed_wait(module, allocation) for allocation in range(30)} - {None}

for module in (asyncio, hotloop.asyncio):
    print(impl.run(failures(module)))
"""


@on_both_loops
@limits_memory
def test_wait_ends_with_the_lock_held(impl):
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    assert impl.run_script(SCRIPT).stdout == "{(True, 32)}\n" * 2
