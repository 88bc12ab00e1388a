"""What does a task cost: to create, to step, and to wake through a future?"""

import asyncio
from typing import Any

from .registry import Rows

rows = Rows()

MANY = 100


async def child() -> None:
    pass


@rows.in_task(operations=20_000)
async def sleep_0_one_task(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one step of a task cost when nothing else is ready?"""
    for _ in range(n):
        await asyncio.sleep(0)


@rows.in_task(operations=20_000)
async def sleep_0_100_tasks(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one step of a task cost when a hundred are ready?"""

    async def sleep_repeatedly(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    whole, rest = divmod(n, MANY)
    tasks = [asyncio.create_task(sleep_repeatedly(whole + (index < rest))) for index in range(MANY)]
    for task in tasks:
        await task


@rows.in_task(operations=10_000)
async def futures_two_tasks(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a future cost, made by one task, awaited there, and resolved by another? Two tasks take turns."""
    mailboxes = [loop.create_future(), loop.create_future()]

    async def take_turns(mine: int, theirs: int, turns: int) -> None:
        for _ in range(turns):
            await mailboxes[mine]
            mailboxes[mine] = loop.create_future()
            mailboxes[theirs].set_result(None)

    first = asyncio.create_task(take_turns(0, 1, n - n // 2))
    second = asyncio.create_task(take_turns(1, 0, n // 2))
    mailboxes[0].set_result(None)
    await first
    await second


@rows.in_task(operations=10_000)
async def create_task_await(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does it cost to run a coroutine in a task of its own, from creating the task to its awaited result?"""
    for _ in range(n):
        await asyncio.create_task(child())


eager_task_factory: Any = getattr(asyncio, "eager_task_factory", None)


def without_eager_tasks() -> str | None:
    return "eager tasks came with Python 3.12" if eager_task_factory is None else None


@rows.in_task(operations=20_000, unavailable=without_eager_tasks)
async def create_task_eager(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does it cost in an eager task, whose first step runs at once and is the last?"""
    loop.set_task_factory(eager_task_factory)
    try:
        for _ in range(n):
            await asyncio.create_task(child())
    finally:
        loop.set_task_factory(None)


@rows.in_task(operations=100)
async def gather_100(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does gather() of 100 coroutines cost?"""
    for _ in range(n):
        await asyncio.gather(*[child() for _ in range(MANY)])


@rows.in_task(operations=100)
async def task_group_100(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a TaskGroup of 100 tasks cost?"""
    for _ in range(n):
        async with asyncio.TaskGroup() as group:
            for _ in range(MANY):
                group.create_task(child())
