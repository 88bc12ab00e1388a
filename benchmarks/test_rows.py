"""Is this commit slower or faster than an earlier one? Every row of compare.py, by pytest-benchmark.

    pytest benchmarks/ --benchmark-autosave                          # before
    pytest benchmarks/ --benchmark-compare                           # after
    pytest benchmarks/ --benchmark-compare -k 'call_soon and not asyncio'

A round is a fixed number of operations, so that rounds of two commits can be compared; the saved file has the number
under extra_info. The time of a network row includes the clients' work; it is not the server's processor time, which
compare.py compares. README.md beside this file says how far to trust the figures.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from hotloop_bench.cli import usual_rows
from hotloop_bench.rows import Row

ROUNDS = 40
WARM_UP_ROUNDS = 3


# A row that finds its own number of operations has no rounds to compare.
COMPARABLE = [row for row in usual_rows() if row.calibrated]


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.benchmark(group=row.name), id=row.name) for row in COMPARABLE]
)
def test_row(benchmark: BenchmarkFixture, opened: Callable[[Row], Any], row: Row) -> None:
    if reason := row.unavailable():
        pytest.skip(reason)
    benchmark.extra_info["operations"] = row.operations
    subject = opened(row)
    benchmark.pedantic(row.run, (subject, row.operations), rounds=ROUNDS, warmup_rounds=WARM_UP_ROUNDS)
