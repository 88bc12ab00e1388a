"""Timing one row: a round of n operations, and the n that makes a round long enough to trust."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .load import Load

TRIES = 3


@dataclass(frozen=True)
class Sample:
    """One round."""

    elapsed: float
    """Seconds."""
    load: Load | None
    """The result of a network row, which measures itself."""


def sample(run: Callable[[Any, int], object], subject: Any, n: int) -> Sample:
    """One round. The garbage collector runs, because it runs in users' programs too."""
    start = time.perf_counter()
    said = run(subject, n)
    return Sample(time.perf_counter() - start, said if isinstance(said, Load) else None)


def calibrated(measure: Callable[[int], float], seconds: float) -> int:
    """The n for which measure(n) takes about `seconds`.

    The last try is at least a quarter as long as that, so that the constant part of a round is small in it. A try can
    also be long because the machine was busy, so a try that looks long enough is repeated, and the shortest counts.
    """
    n = 1
    while (elapsed := quickest(measure, n, enough=seconds / 4)) < seconds / 4:
        growth = seconds / 2 / elapsed if elapsed > 0 else math.inf
        n = math.ceil(n * min(10.0, max(2.0, growth)))
    return max(1, round(n * seconds / elapsed))


def quickest(measure: Callable[[int], float], n: int, enough: float) -> float:
    """The shortest of several measurements, or the first one shorter than `enough`."""
    shortest = math.inf
    for _ in range(TRIES):
        shortest = min(shortest, measure(n))
        if shortest < enough:
            break
    return shortest
