"""Is this commit slower or faster than an earlier one? Every row of `python -m hotloop bench`, by pytest-benchmark.

    pytest benchmarks/ --benchmark-autosave                          # before
    pytest benchmarks/ --benchmark-compare                           # after
    pytest benchmarks/ --benchmark-compare -k 'call_soon and not asyncio'

A round is a fixed number of operations, so that rounds of two commits can be compared; it is in the saved file, under
extra_info. How much to believe: see README.md beside this file.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from hotloop.bench.rows import ROWS, Row

ROUNDS = 40
WARM_UP_ROUNDS = 3


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.benchmark(group=name), id=name) for name, row in ROWS.items()]
)
def test_row(benchmark: BenchmarkFixture, opened: Callable[[Row], Any], row: Row) -> None:
    benchmark.extra_info["operations"] = row.operations
    subject = opened(row)
    benchmark.pedantic(row.run, (subject, row.operations), rounds=ROUNDS, warmup_rounds=WARM_UP_ROUNDS)
