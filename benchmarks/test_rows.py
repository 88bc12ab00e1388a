"""Is this commit slower or faster than an earlier one? Every row of compare.py, by pytest-benchmark.

    pytest benchmarks/ --benchmark-autosave                          # before
    pytest benchmarks/ --benchmark-compare                           # after
    pytest benchmarks/ --benchmark-compare -k 'call_soon and not asyncio'

A round is a fixed number of operations, so that rounds of two commits can be compared; it is in the saved file, under
extra_info. Of a network row this is the time of a round with the clients' work in it, and not the server's processor
time, which compare.py compares. How much to believe: see README.md beside this file.
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
