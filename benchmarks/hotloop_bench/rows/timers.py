"""What does a timer cost: one that never fires, as most timeouts never do, and one that does?"""

import asyncio

from .registry import Rows

rows = Rows()

BATCH = 100


@rows.on_loop(operations=10_000)
def call_later_cancel(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a timeout cost that is cancelled before it fires? n of them, 100 an iteration."""

    def expired() -> None:
        raise AssertionError("a cancelled timer has fired")

    def schedule(left: int) -> None:
        batch = min(BATCH, left)
        for _ in range(batch):
            loop.call_later(60, expired).cancel()
        if left > batch:
            loop.call_soon(schedule, left - batch)
        else:
            loop.stop()

    loop.call_soon(schedule, n)
    loop.run_forever()


def fire(loop: asyncio.AbstractEventLoop, n: int, most_pending: int) -> None:
    """Set n timers in no order, up to `most_pending` at a time, and run each.

    They are due 1.0 to 1.2 ms after the first of a batch was set. Setting so many takes every loop longer than that, so
    all are due when the loop gets to them. The row never waits: it measures work, not sleep."""
    left = n
    pending = 0
    offsets = [0.001 + 0.0002 * (index * 7919 % most_pending) / most_pending for index in range(most_pending)]

    def fired() -> None:
        nonlocal left, pending
        left -= 1
        pending -= 1
        if not pending:
            schedule()

    def schedule() -> None:
        nonlocal pending
        pending = min(most_pending, left)
        if not pending:
            loop.stop()
            return
        start = loop.time()
        for offset in offsets[:pending]:
            loop.call_at(start + offset, fired)

    loop.call_soon(schedule)
    loop.run_forever()


@rows.on_loop(operations=20_000)
def timers_firing(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a timer cost that fires? n of them, set in no order, up to 20,000 of them pending at a time."""
    fire(loop, n, 20_000)


@rows.on_loop(operations=100_000, in_a_round=200_000)
def timers_firing_100k(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a timer cost that fires, with up to 100,000 pending at a time?"""
    fire(loop, n, 100_000)


@rows.on_loop(operations=1_000_000, in_a_round=1_000_000)
def timers_firing_1M(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a timer cost that fires, with up to 1,000,000 pending at a time?"""
    fire(loop, n, 1_000_000)
