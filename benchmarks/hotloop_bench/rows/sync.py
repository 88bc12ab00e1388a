"""What do asyncio's own helpers cost, which use the loop's futures, tasks and timers?"""

import asyncio

from .registry import Rows

rows = Rows()


@rows.in_task(operations=10_000)
async def queue_put_get(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one item through an asyncio.Queue of ten places cost, with a producer and a consumer?"""
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=10)

    async def produce() -> None:
        for item in range(n):
            await queue.put(item)

    producer = asyncio.create_task(produce())
    for _ in range(n):
        await queue.get()
    await producer


@rows.in_task(operations=5_000)
async def wait_for(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does wait_for() cost around a coroutine that finishes in time, after one iteration?"""

    async def finish_in_time() -> None:
        await asyncio.sleep(0)

    for _ in range(n):
        await asyncio.wait_for(finish_in_time(), 60)


@rows.in_task(operations=10_000)
async def timeout(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does timeout() cost around a block that finishes in time, after one iteration?"""
    for _ in range(n):
        async with asyncio.timeout(60):
            await asyncio.sleep(0)


@rows.in_task(operations=20_000)
async def lock(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does it cost to take a Lock that is free, and to release it?"""
    held = asyncio.Lock()
    for _ in range(n):
        async with held:
            pass


@rows.in_task(operations=10_000)
async def semaphore_contended(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does it cost to take and release a Semaphore of five, which ten tasks use?"""
    room = asyncio.Semaphore(5)

    async def work(times: int) -> None:
        for _ in range(times):
            async with room:
                await asyncio.sleep(0)

    whole, rest = divmod(n, 10)
    await asyncio.gather(*[work(whole + (index < rest)) for index in range(10)])
