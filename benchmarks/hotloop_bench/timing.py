"""Timing one row: a round of n operations, and how many make a round long enough to be believed."""

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
    """What a network row says of itself."""


def sample(run: Callable[[Any, int], object], subject: Any, n: int) -> Sample:
    """One round. The garbage collector stays as it is, since it also runs for the users."""
    start = time.perf_counter()
    said = run(subject, n)
    return Sample(time.perf_counter() - start, said if isinstance(said, Load) else None)


def calibrated(measure: Callable[[int], float], seconds: float) -> int:
    """The n for which measure(n) takes about `seconds`.

    The last try is at least a quarter as long as that, so that what is constant in a round is small in it too. A try
    can also be long because the machine was busy elsewhere, so one that looks long enough must do so several times.
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
