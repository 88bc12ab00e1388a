"""The allocations to fail: each one of a scenario alone, and several in a row.

`python` are the allocations of the interpreter's three domains; `libc` are the extension's direct ones."""

import math
from collections.abc import Iterator, Sequence

from .shim import Fault

ALLOCATORS = ("python", "libc")
COUNTS = (1, 10, 100)


def spread(count: int) -> Iterator[int]:
    """The numbers from 1 to `count`, each once and in an order that covers the whole range early: time may run out."""
    step = max(1, int(count * 0.618))
    while math.gcd(step, count) != 1:
        step += 1
    place = 0
    for _ in range(count):
        yield place + 1
        place = (place + step) % count


def faults(allocator: str, allocations: int, counts: Sequence[int]) -> Iterator[Fault]:
    """All faults for a scenario with so many `allocations`: a single one, and each number in a row of `counts`."""
    for first in spread(allocations):
        for count in counts:
            yield Fault(allocator, first, count)
