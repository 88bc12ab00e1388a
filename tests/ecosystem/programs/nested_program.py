"""A program with nest_asyncio2, which runs the loop from inside one of its tasks. It prints facts about its loop."""

import asyncio
import json

from facts import facts


async def inner(depth):
    await asyncio.sleep(0.001)
    if depth:
        return asyncio.get_running_loop().run_until_complete(inner(depth - 1))
    return asyncio.current_task().get_name()


async def main():
    loop = asyncio.get_running_loop()
    me = asyncio.current_task()
    other = asyncio.create_task(asyncio.sleep(0.002, "meanwhile"))
    names = {loop.run_until_complete(inner(depth)) for depth in range(3)} | {asyncio.run(inner(1))}
    assert len(names) == 4 and me.get_name() not in names
    assert len(loop.run_until_complete(asyncio.gather(inner(0), inner(1)))) == 2
    assert await other == "meanwhile"
    assert asyncio.current_task() is me
    print(json.dumps(facts()))
