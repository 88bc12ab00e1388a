"""What does it cost to reach the loop from another thread, and another thread from the loop?"""

import asyncio
import threading

from .registry import Rows

rows = Rows()

BURST = 1_000


@rows.on_loop(operations=10_000)
def call_soon_threadsafe(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does one call_soon_threadsafe() cost? A thread makes n, in bursts of 1,000 that it lets the loop finish."""
    burst_ran = threading.Semaphore(0)

    def work() -> None:
        pass

    def call_from_thread() -> None:
        for start in range(0, n, BURST):
            for _ in range(min(BURST, n - start)):
                loop.call_soon_threadsafe(work)
            loop.call_soon_threadsafe(burst_ran.release)
            burst_ran.acquire()
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=call_from_thread)
    thread.start()
    loop.run_forever()
    thread.join()


@rows.in_task(operations=1_000, in_turns=True)
async def run_in_executor(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """What does a function call in the default executor cost, from the loop to the thread and back?"""

    def work() -> None:
        pass

    for _ in range(n):
        await loop.run_in_executor(None, work)
