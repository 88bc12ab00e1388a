"""Ways to run a loop step by step, and a clock that a test moves."""

import asyncio
import time
from collections.abc import Callable


def run_once(loop: asyncio.AbstractEventLoop, times: int = 1) -> None:
    """Run exactly one iteration each time: after stop(), run_forever() polls without waiting and runs one batch."""
    for _ in range(times):
        loop.stop()
        loop.run_forever()


def run_until(loop: asyncio.AbstractEventLoop, happened: Callable[[], object]) -> None:
    """Run until `happened()` is true. The test's hang guard is the only time limit."""

    def look() -> None:
        if happened():
            loop.stop()
        else:
            # Not call_soon(): with work always queued, the loop would never wait in its poll.
            loop.call_later(0.001, look)

    loop.call_soon(look)
    loop.run_forever()


def turns_until(loop: asyncio.AbstractEventLoop, happened: Callable[[], object]) -> None:
    """Like run_until(), but in single turns, and without a timer: asyncio's loop fails if a callback runs the loop and
    so takes what is left of the turn, such as that timer."""
    for _ in range(10_000):
        if happened():
            return
        run_once(loop)
    raise AssertionError("it has not happened")


def burn(seconds: float) -> None:
    """Keep the thread busy for at least that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Clock:
    """Stands in for `loop.time`; moves only when a test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    @classmethod
    def replacing_time_of(cls, loop: asyncio.AbstractEventLoop) -> "Clock":
        clock = cls()
        loop.time = clock  # type: ignore[method-assign]
        return clock
