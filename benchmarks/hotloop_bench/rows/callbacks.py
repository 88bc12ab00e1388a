"""What do one iteration and one callback of the loop cost, without I/O and tasks?"""

import asyncio

from .registry import Rows

rows = Rows()

BATCH = 100


@rows.on_loop(operations=20_000)
def call_soon_chain(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one iteration of the loop cost? A callback schedules itself n times."""
    left = n

    def step() -> None:
        nonlocal left
        left -= 1
        if left > 0:
            loop.call_soon(step)
        else:
            loop.stop()

    loop.call_soon(step)
    loop.run_forever()


@rows.on_loop(operations=20_000)
def call_soon_batches(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one callback with arguments cost when an iteration has many to run? n of them, 100 an iteration."""

    def work(first: int, second: int, third: int) -> None:
        pass

    def schedule(left: int) -> None:
        batch = min(BATCH, left)
        for _ in range(batch):
            loop.call_soon(work, 1, 2, 3)
        if left > batch:
            loop.call_soon(schedule, left - batch)
        else:
            loop.call_soon(loop.stop)

    loop.call_soon(schedule, n)
    loop.run_forever()
