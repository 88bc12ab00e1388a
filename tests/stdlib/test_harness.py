"""Tests of the harness that runs CPython's suites: it sees every outcome of a test, and checks the list both ways."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conformance import catalog, pool
from conformance.expected import Expectations
from conformance.pool import Run, Verdict

FAILING = """
[[failing]]
suite = "s"
tests = ["A.test_x"]
reason = "cannot pass"
"""


@pytest.fixture(scope="module")
def sample_run():
    try:
        catalog.suites(set())
    except catalog.NotAvailable as reason:
        pytest.skip(f"NOT RUN: {reason}")
    return pool.run_suite(pool.Job(module="conformance.sample", impl="asyncio", unbound=[], timeout=1.0))


@pytest.mark.parametrize(
    ("test", "outcome", "text"),
    [
        ("aborts", "crashed", "Fatal Python error: Aborted"),
        ("fails", "failed", "AssertionError: on purpose"),
        ("fails_in_a_subtest", "failed", "(part=1)"),
        ("hangs", "hung", "in test_hangs"),
        ("passes", "passed", ""),
        ("passes_unexpectedly", "failed", "but it passed"),
        ("skips", "skipped", "on purpose"),
    ],
)
def test_each_test_has_its_own_verdict(sample_run, test, outcome, text):
    verdict = sample_run.verdicts[f"SampleTests.test_{test}"]
    assert verdict.outcome == outcome
    assert text in verdict.text


def test_a_broken_fixture_is_a_failure(sample_run):
    [name] = [name for name in sample_run.verdicts if "setUpClass" in name]
    assert sample_run.verdicts[name].bad
    assert len(sample_run.verdicts) == 8


def judge(text, verdicts, *, version=(3, 13, 0), complete=True):
    return Expectations("c", text, version).judge("s", Run(verdicts), complete=complete)


def test_listed_failure_is_expected():
    assert judge(FAILING, {"A.test_x": Verdict("failed")}).expected == {"A.test_x": "cannot pass"}


def test_unlisted_failure_is_a_problem():
    assert list(judge("", {"A.test_x": Verdict("hung")}).problems) == ["A.test_x"]


def test_listed_test_that_passes_is_a_problem():
    assert "unexpected pass" in judge(FAILING, {"A.test_x": Verdict("passed")}).problems["A.test_x"]


@pytest.mark.parametrize(("outcome", "kind"), [("failed", "expected"), ("passed", "passed")])
def test_unstable_test_may_pass_or_fail(outcome, kind):
    judgement = judge(FAILING.replace("failing", "unstable"), {"A.test_x": Verdict(outcome)})
    assert list(getattr(judgement, kind)) == ["A.test_x"]
    assert not judgement.problems


def test_listed_name_that_does_not_exist_is_a_problem():
    verdicts = {"A.test_y": Verdict("passed")}
    assert "no such test" in judge(FAILING, verdicts).problems["[[failing]] A.test_x"]
    unstable = FAILING.replace("failing", "unstable")
    assert "no such test" in judge(unstable, verdicts).problems["[[unstable]] A.test_x"]
    assert not judge(FAILING, verdicts, complete=False).problems


@pytest.mark.parametrize(
    ("spec", "applies"), [(">=3.13", True), ("<3.13", False), (">3.13.0", False), ("==3.13", True)]
)
def test_entry_of_some_versions(spec, applies):
    judgement = judge(FAILING + f'python = "{spec}"', {"A.test_x": Verdict("failed")})
    assert bool(judgement.expected) is applies
    assert bool(judgement.problems) is not applies


def test_entry_of_another_implementation_does_not_apply():
    assert judge(FAILING + 'impl = ["python"]', {"A.test_x": Verdict("failed")}).problems


def test_class_that_uses_no_loop_under_test_is_a_problem():
    verdicts = {"A.test_x": Verdict("passed", own=False), "B.test_x": Verdict("passed", own=False, loops=1)}
    assert list(judge("", verdicts).problems) == ["A (class)"]
