"""Measurements and what follows from them: medians, ratios and geometric means. Nothing here reads a clock."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .load import Load

OURS = ("hotloop-c", "hotloop-compiled", "hotloop-asyncio-tasks", "hotloop-python")
LIMIT = "bare-c"
"""The bare C server: no loop, and so no rival."""


@dataclass(frozen=True)
class Measurement:
    """One loop in one row."""

    operations: int
    """In each round."""
    seconds: list[float]
    """For one operation, by round; in a network row, seconds of processor time."""
    loads: list[Load] = field(default_factory=list)
    """By round, of a network row."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def middle_half(self) -> tuple[float, float]:
        """The lower and the upper quartile of the rounds, in seconds."""
        if len(self.seconds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """The distance of the quartiles as a part of the median: the machine's noise."""
        low, high = self.middle_half
        return (high - low) / self.median

    @property
    def rate(self) -> float | None:
        """Operations a second, of a network row."""
        return median_of(load.rate for load in self.loads)

    @property
    def p50(self) -> float | None:
        """Seconds; None where no load generator has measured it."""
        return median_of(load.p50 for load in self.loads)

    @property
    def p99(self) -> float | None:
        return median_of(load.p99 for load in self.loads)


def median_of(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


@dataclass(frozen=True)
class NotMeasured:
    """Why a loop has no result in a row."""

    kind: Literal["not applicable", "unavailable", "not offered", "failed"]
    """The row is not meant for this loop; this machine cannot measure the row; the loop does not implement what the row
    measures; or the row ended with an error."""
    reason: str


Outcome = Measurement | NotMeasured
Outcomes = Mapping[str, Outcome]
Ratio = Callable[[Outcomes], float | None]


def medians(outcomes: Outcomes) -> dict[str, float]:
    """Seconds for one operation, by loop, without the loops that have no result."""
    return {name: outcome.median for name, outcome in outcomes.items() if isinstance(outcome, Measurement)}


def best_other(outcomes: Outcomes) -> str | None:
    """The fastest loop that is not hotloop."""
    others = {name: seconds for name, seconds in medians(outcomes).items() if name not in (*OURS, LIMIT)}
    return min(others, key=others.__getitem__) if others else None


def speed(outcomes: Outcomes, loop: str, reference: str | None) -> float | None:
    """How many times as fast as the reference a loop is; None if one of them has no result."""
    seconds = medians(outcomes)
    if reference is None or reference not in seconds or loop not in seconds:
        return None
    return seconds[reference] / seconds[loop]


def speed_over_best_other(outcomes: Outcomes, loop: str) -> float | None:
    return speed(outcomes, loop, best_other(outcomes))


def processor_time_over_limit(outcomes: Outcomes, loop: str) -> float | None:
    """A loop's processor time divided by that of the bare C server."""
    return speed(outcomes, LIMIT, loop)


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Of the ratios that are not None; None if there are none."""
    present = [ratio for ratio in ratios if ratio is not None]
    return math.exp(statistics.fmean(map(math.log, present))) if present else None


def mean_over(tables: Iterable[Outcomes], baseline: str, ratio: Ratio) -> float | None:
    """The geometric mean of a ratio over the rows that the baseline has.

    None if one of them lacks the ratio: means of different rows cannot be compared.
    """
    ratios = [ratio(outcomes) for outcomes in tables if isinstance(outcomes.get(baseline), Measurement)]
    return None if None in ratios else geometric_mean(ratios)


@dataclass(frozen=True)
class Comparison:
    """One loop against another over many rows."""

    loop: str
    reference: str
    rows: int
    mean: float
    lowest: float
    lowest_row: str


def compare(rows: Mapping[str, Outcomes], loop: str, reference: str) -> Comparison | None:
    """`loop` against `reference`, which may be "best other"; None if no row has both."""
    ratios = {}
    for name, outcomes in rows.items():
        rival = best_other(outcomes) if reference == "best other" else reference
        ratio = speed(outcomes, loop, rival)
        if ratio is not None:
            ratios[name] = ratio
    mean = geometric_mean(ratios.values())
    if mean is None:
        return None
    lowest_row = min(ratios, key=ratios.__getitem__)
    return Comparison(loop, reference, len(ratios), mean, ratios[lowest_row], lowest_row)


def comparisons(rows: Mapping[str, Outcomes], loops: Sequence[str]) -> list[Comparison]:
    """The comparisons that a reader wants to see first."""
    wanted = [
        ("hotloop-c", "best other"),
        *(("hotloop-c", loop) for loop in loops if loop not in (*OURS, LIMIT)),
        ("hotloop-compiled", "best other"),
        ("hotloop-compiled", "hotloop-c"),
        *(("hotloop-compiled", loop) for loop in loops if loop == "uvloop"),
        ("hotloop-python", "asyncio"),
    ]
    found = (compare(rows, loop, reference) for loop, reference in wanted)
    return [comparison for comparison in found if comparison is not None]
