"""What the rows of clients share: the loop is the client's, and the server is another process, which does not count."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from ..load import Load
from .serving import Loop

Request = Callable[[], Awaitable[object]]
"""Makes a request, and returns or raises when the response is there."""


class Asking:
    """Clients on a loop, each of which makes its next request when it has the response to its last."""

    def __init__(self, loop: Loop, requests: Sequence[Request]) -> None:
        """A client for each of `requests`."""
        self.loop, self.requests = loop, requests

    def run(self, n: int) -> Load:
        latencies: list[float] = []
        cpu, start = time.process_time(), time.perf_counter()
        self.loop.run_until_complete(self.ask(n, latencies))
        cpu, elapsed = time.process_time() - cpu, time.perf_counter() - start
        latencies.sort()
        return Load(n, cpu, elapsed, quantile(latencies, 0.50), quantile(latencies, 0.99))

    async def ask(self, n: int, latencies: list[float]) -> None:
        left = iter(range(n))
        async with asyncio.TaskGroup() as group:
            for request in self.requests:
                group.create_task(one_by_one(request, left, latencies))


async def one_by_one(request: Request, left: Iterator[int], latencies: list[float]) -> None:
    """Make requests until none is left; all clients share the iterator."""
    for _ in left:
        began = time.perf_counter()
        await request()
        latencies.append(time.perf_counter() - began)


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value that this part of all values does not exceed."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
