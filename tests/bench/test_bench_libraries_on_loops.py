"""Every row of a library's server or client in benchmarks/compare.py, on every installed loop."""

import pytest
from support.measured_loops import loops_that_must_do_every_row

from hotloop_bench.results import Measurement
from hotloop_bench.rows import ROWS
from hotloop_bench.runner import Crew, Settings
from hotloop_bench.targets import TARGETS


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.table == "Libraries"], ids=lambda row: row.name)
def test_a_row_of_a_library_runs_on_every_loop_that_is_installed(row):
    if reason := row.unavailable():
        pytest.skip(reason)
    with Crew(TARGETS.values()) as crew:
        outcomes = crew.measure(row, Settings(rounds=1, seconds=0.001))
    must = loops_that_must_do_every_row()
    assert must <= outcomes.keys()
    for name, outcome in outcomes.items():
        if isinstance(outcome, Measurement):
            assert outcome.p50 <= outcome.p99
        else:
            assert name not in must, outcome.reason
