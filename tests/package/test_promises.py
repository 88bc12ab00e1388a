"""docs/promises.md: every promise is held by a test, and the page names it."""

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path

import promises
import pytest

SCRIPT = Path(promises.__file__)
PROMISES = tomllib.loads(SCRIPT.with_suffix(".toml").read_text(encoding="utf-8"))
TEST = promises.Test("test_x", "tests/test_x.py", {"c", "python", "asyncio"})


def test_the_page_is_current_and_every_promise_has_a_test():
    run = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_the_promises_are_in_the_order_of_their_numbers():
    assert list(PROMISES) == sorted(PROMISES)
    assert all(promise["promise"].strip().endswith(".") for promise in PROMISES.values())


@pytest.mark.parametrize(
    ("implementations", "missing"),
    [
        ([], "c and python"),
        ([{"c", "asyncio"}], "python"),
        ([{"c"}, {"python"}], None),
        ([set()], None),  # a test that does not depend on an implementation
    ],
)
def test_a_promise_that_no_test_holds_is_a_problem(implementations, missing):
    tests = [promises.Test("test_x", "tests/test_x.py", names) for names in implementations]
    found = list(promises.problems({"P01": {"promise": "Once."}}, {"P01": tests}))
    assert found == ([f"P01 has no test on {missing}: Once."] if missing else [])


def test_a_number_that_is_promised_nowhere_is_a_problem():
    assert list(promises.problems({}, {"P01": [TEST]})) == ["P01 is promised nowhere, but checked by test_x"]


def test_a_file_that_is_not_there_is_a_problem():
    promise = {"promise": "Once.", "also": [["tests/none.py", "other tests"], ["tests/promises.py", "this"]]}
    assert list(promises.problems({"P01": promise}, {"P01": [TEST]})) == [
        "P01 names a file that is not there: tests/none.py"
    ]


def test_the_page_names_threads_tests_and_reasons():
    another = dataclasses.replace(TEST, name="test_z")
    alone = promises.Test("test_y", "tests/test_y.py", {"c"}, ["asyncio cannot"])
    promise = {"promise": "\nOnce.", "threads": ["a/b#1"], "also": [["tests/promises.py", "other tests"]]}
    text = promises.page({"P01": promise}, {"P01": [TEST, another, alone]})
    assert text.removeprefix(promises.HEAD) == (
        "\n## P01\n\nOnce.\n\nThreads: [a/b#1](https://github.com/a/b/issues/1).\n"
        "\n| file | tests |\n|---|---|\n"
        "| `tests/test_x.py` | `test_x`<br>`test_z` |\n"
        "| `tests/test_y.py` | `test_y`, only on c: asyncio cannot |\n"
        "| `tests/promises.py` | other tests |\n"
    )
