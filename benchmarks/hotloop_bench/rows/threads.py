"""What does it cost to reach the loop from another thread, and another thread from the loop?"""

import asyncio
import threading

from .registry import Rows

rows = Rows()


def post(loop: asyncio.AbstractEventLoop, n: int, burst: int, threads: int = 1) -> None:
    """Have threads make n calls of call_soon_threadsafe(), in bursts that they let the loop finish."""
    left = threads

    def work() -> None:
        pass

    def call_from_thread(calls: int) -> None:
        burst_ran = threading.Semaphore(0)
        for start in range(0, calls, burst):
            for _ in range(min(burst, calls - start)):
                loop.call_soon_threadsafe(work)
            loop.call_soon_threadsafe(burst_ran.release)
            burst_ran.acquire()
        loop.call_soon_threadsafe(ended)

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    callers = [threading.Thread(target=call_from_thread, args=(n // threads,)) for _ in range(threads)]
    for thread in callers:
        thread.start()
    loop.run_forever()
    for thread in callers:
        thread.join()


@rows.on_loop(operations=10_000)
def call_soon_threadsafe(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one call_soon_threadsafe() cost? A thread makes n, in bursts of 1,000 that it lets the loop finish."""
    post(loop, n, 1_000)


@rows.on_loop(operations=80_000, in_a_round=400_000)
def call_soon_threadsafe_40k(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one call_soon_threadsafe() cost in bursts of 40,000?"""
    post(loop, n, 40_000)


@rows.on_loop(operations=160_000, in_a_round=640_000)
def call_soon_threadsafe_4x40k(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one call_soon_threadsafe() cost in bursts of 40,000 from each of four threads?"""
    post(loop, n, 40_000, threads=4)


@rows.in_task(operations=1_000, in_turns=True)
async def run_in_executor(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a function call in the default executor cost, from the loop to the thread and back?"""

    def work() -> None:
        pass

    for _ in range(n):
        await loop.run_in_executor(None, work)
