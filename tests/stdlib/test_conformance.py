"""CPython's own asyncio and selector suites on hotloop; see run.py, which does the same without pytest."""

import concurrent.futures
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run
from conformance import catalog

PROCESSES = 2  # suites that run at the same time
# The oracle answers questions about the harness or the machine (run.py --impl asyncio); not every test run needs it.
IMPLEMENTATIONS = [name for name in os.environ.get("HOTLOOP_TEST_IMPLS", "c,python").split(",") if name != "asyncio"]


def _cases():
    """One case for each suite and implementation, or a single one with the reason why there is none."""
    try:
        sessions = [run.Session(impl) for impl in IMPLEMENTATIONS]
    except catalog.NotAvailable as reason:
        return [pytest.param(None, None, id="none", marks=pytest.mark.skip(reason=f"NOT RUN: {reason}"))]
    return [
        pytest.param(session, suite, id=f"{session.impl}-{suite}") for session in sessions for suite in session.suites()
    ]


@pytest.fixture(scope="module")
def running(request):
    """The requested suites, started early so that two run at a time."""
    items = [item for item in request.session.items if item.function is test_suite]
    executor = concurrent.futures.ThreadPoolExecutor(PROCESSES)
    try:
        yield {
            (session.impl, suite): executor.submit(session.run_suite, suite)
            for session, suite in (item.callspec.params.values() for item in items)
            if session is not None
        }
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.mark.conformance
@pytest.mark.parametrize(("session", "suite"), _cases())
def test_suite(session, suite, running):
    judgement, outcome = running[session.impl, suite].result()
    if outcome.no_suite is not None:
        pytest.skip(f"CPython leaves this suite out here: {outcome.no_suite}")
    problems = [f"{name}\n{problem}" for name, problem in judgement.problems.items()]
    assert not problems, f"{run.counts([judgement])}\n\n" + "\n\n".join(problems)
