"""benchmarks/floor.py: how it divides the instructions of a profile, and its conclusions."""

import subprocess
import sys
from pathlib import Path

import pytest

import floor

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

# The evaluation loop calls the loop, which allocates, and enters the evaluation loop again, which allocates, too.
PROFILE = """\
# callgrind format
events: Ir

ob=(1) /usr/bin/python3
fl=(1) ???
fn=(1) _PyEval_EvalFrameDefault'main
0 100
cob=(2) /somewhere/hotloop/_c/core.so
cfn=(2) run_items'_PyEval_EvalFrameDefault'main
calls=1 0
0 9999

ob=(2)
fn=(2)
0 20
+3 1
cob=(1)
cfn=(3) allocate'run_items'_PyEval_EvalFrameDefault
calls=1 0
0 9999

ob=(1)
fn=(3)
0 3
fn=(4) _PyEval_EvalFrameDefault'2'send'run_items
0 200
fn=(5) allocate'_PyEval_EvalFrameDefault'2'send
0 30
fn=(6) start_thread'clone
0 5
"""


def test_instructions_belong_to_the_nearest_caller_that_is_the_loop_or_python_code():
    found = floor.split(PROFILE)
    assert (found.own, found.called, found.python, found.unknown) == (20 + 1, 3, 100 + 200 + 30, 5)
    assert found.total == 359
    assert found.part_of_python == pytest.approx(330 / 359)


def test_the_floor_is_what_is_left_without_the_loop():
    counted = floor.Floor("row", 1000.0, floor.Split(own=200.0, called=100.0, python=400.0, unknown=100.0), None)
    assert counted.now == pytest.approx(1000 / 800)
    assert counted.highest == pytest.approx(1000 / 400)
    assert counted.with_own(0) == pytest.approx(1000 / 600)
    assert counted.with_own(0.5) == pytest.approx(1000 / 700)
    timed = floor.Floor("row", 1000.0, counted.ours, 1.5)
    assert timed.now == 1.5
    assert timed.highest == pytest.approx(1.5 * 800 / 400)
    assert timed.with_own(0) == pytest.approx(1.5 * 800 / 600)


def test_the_conclusion_says_what_the_other_rows_would_have_to_be():
    def row(name, now, highest):
        own, python = 100 - 100 * now / highest, 100 * now / highest
        return floor.Floor(name, now * 100, floor.Split(own, 0, python, 0), None)

    said = floor.conclusion([row("limited", 1.0, 1.25), row("free", 2.0, 10.0)], "uvloop")
    assert said[0] == (
        "Geometric mean of 2 rows, in instructions: 1.41 times uvloop now, "
        "3.54 without the loop's own code, 3.54 at the floor."
    )
    assert said[1] == "hotloop would reach 2.5 if its own code took 22% of its instructions."
    assert "in limited: 1.25 in the geometric mean is their floor" in said[2]
    assert "takes 5.00 in the other 1, now 2.00" in said[3]
    said = floor.conclusion([row("limited", 1.0, 1.25)], "uvloop")
    assert said[1] == "Without its own code hotloop would not reach 2.5."


def test_speeds_are_read_from_the_results_of_a_run(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(
        '{"rows": [{"name": "a", "results": {"uvloop": {"median": 3.0}, "hotloop-c": {"median": 2.0}}},'
        ' {"name": "b", "results": {"uvloop": {"kind": "failed"}, "hotloop-c": {"median": 2.0}}}]}'
    )
    assert floor.speeds(path, "uvloop") == {"a": 1.5}
    assert floor.speeds(None, "uvloop") == {}


def test_without_valgrind_it_says_so_in_one_line(tmp_path):
    command = [sys.executable, str(SCRIPTS / "floor.py"), "--rows", "queue_put_get"]
    done = subprocess.run(
        command,
        env={"PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "floor.py: valgrind is not installed (see --help)\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "select_1"], "argument --rows: none of these rows is an event loop's"),
        (
            ["--rows", "queue_put_get", "--results", "results.json"],
            "argument --results: results.json has none of these rows",
        ),
    ],
)
def test_without_a_row_to_count_it_says_so_in_one_line(tmp_path, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(floor.shutil, "which", lambda name: name)
    Path("results.json").write_text(
        '{"rows": [{"name": "a", "results": {"uvloop": {"median": 3.0}, "hotloop-c": {"median": 2.0}}}]}'
    )
    with pytest.raises(SystemExit) as exited:
        floor.main(arguments)
    assert exited.value.code == 2
    assert capsys.readouterr().err == f"floor.py: {problem} (see --help)\n"
