"""benchmarks/compare.py: its results, its report and its command line."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

import hotloop
from hotloop_bench import cli, machine, report, results
from hotloop_bench.results import Measurement, NotMeasured
from hotloop_bench.rows import ROWS
from hotloop_bench.targets import TARGETS

FACTS = {"version": "1.0", "loop": "some.Loop", "task": "some.Task"}


def seconds(*values):
    return Measurement(100, list(values))


# -- results -----------------------------------------------------------------------------------------------------------

OUTCOMES = {
    "asyncio": seconds(4.0, 4.0, 4.0),
    "uvloop": seconds(2.0, 1.0, 2.0, 3.0, 90.0),
    "rloop": NotMeasured("failed", "no timers"),
    "hotloop-c": seconds(0.5),
    "hotloop-python": seconds(5.0),
}


def test_a_median_ignores_outliers():
    assert OUTCOMES["uvloop"].median == 2.0


def test_spread_is_that_of_the_middle_half():
    assert seconds(1.0, 9.0, 10.0, 11.0, 1000.0).spread == pytest.approx(0.2)
    assert seconds(3.0).spread == 0.0


def test_the_best_other_is_the_fastest_that_is_not_ours():
    assert results.best_other(OUTCOMES) == "uvloop"
    assert results.best_other({"hotloop-c": seconds(1.0)}) is None


def test_speed_is_relative_to_a_reference():
    assert results.speed(OUTCOMES, "hotloop-c", "asyncio") == 8.0
    assert results.speed(OUTCOMES, "rloop", "asyncio") is None
    assert results.speed(OUTCOMES, "asyncio", "rloop") is None
    assert results.speed(OUTCOMES, "asyncio", None) is None
    assert results.speed_over_best_other(OUTCOMES, "hotloop-c") == 4.0


def test_a_geometric_mean_leaves_out_missing_ratios():
    assert results.geometric_mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert results.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert results.geometric_mean([None]) is None


def test_a_comparison_names_its_lowest_row():
    rows = {
        "first": {"uvloop": seconds(2.0), "hotloop-c": seconds(1.0)},
        "second": {"uvloop": seconds(1.0), "asyncio": seconds(0.5), "hotloop-c": seconds(1.0)},
        "third": {"hotloop-c": seconds(1.0)},
    }
    against_uvloop = results.compare(rows, "hotloop-c", "uvloop")
    assert (against_uvloop.rows, against_uvloop.lowest, against_uvloop.lowest_row) == (2, 1.0, "second")
    assert against_uvloop.mean == pytest.approx(math.sqrt(2))
    against_best = results.compare(rows, "hotloop-c", "best other")
    assert (against_best.rows, against_best.lowest) == (2, 0.5)
    assert against_best.mean == pytest.approx(1.0)
    assert results.compare(rows, "hotloop-python", "asyncio") is None


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished_run():
    with_selector = FACTS | {"selector": "some.Selector"}
    return report.Run(
        machine={"processor": "abacus", "commit": "unknown"},
        facts={"asyncio": with_selector, "uvloop": FACTS, "hotloop-c": with_selector},
        missing={"zuvloop": "No module named 'zuvloop'"},
        baseline="uvloop",
        rounds=3,
        seconds=0.15,
        rows=[ROWS["wait_for"], ROWS["gather_100"], ROWS["select_1"]],
        outcomes={
            "wait_for": {"asyncio": seconds(4e-6), "uvloop": seconds(2e-6), "hotloop-c": seconds(1e-6)},
            "gather_100": {
                "asyncio": seconds(4e-4),
                "uvloop": NotMeasured("failed", "Boom"),
                "hotloop-c": seconds(1e-4),
            },
            "select_1": {
                "asyncio": seconds(1e-6),
                "uvloop": NotMeasured("not applicable", "it has no selector"),
                "hotloop-c": seconds(5e-7),
            },
        },
    )


def test_the_text_in_full(finished_run):
    assert report.text(finished_run).split("\n") == [
        "processor:       abacus",
        "commit:          unknown",
        "asyncio:         1.0; loop some.Loop; task some.Task; selector some.Selector",
        "uvloop:          1.0; loop some.Loop; task some.Task",
        "hotloop-c:       1.0; loop some.Loop; task some.Task; selector some.Selector",
        "zuvloop:         NOT MEASURED: No module named 'zuvloop'",
        "",
        "Event loops: time for one operation, median of 3 rounds",
        "",
        "            asyncio   uvloop  hotloop-c",
        "wait_for    4.00 us  2.00 us    1.00 us",
        "gather_100   400 us   failed     100 us",
        "",
        "Event loops: speed, uvloop = 1; higher is faster",
        "(noise: of the row's noisiest loop, the spread of the middle half of its rounds)",
        "",
        "                asyncio  uvloop  hotloop-c  best other  hotloop-c/best  noise",
        "wait_for           0.50    1.00       2.00      uvloop            2.00     0%",
        "gather_100            -       -          -     asyncio            4.00     0%",
        "geometric mean     0.50    1.00       2.00                        2.00",
        "",
        "Selectors: time for one operation, median of 3 rounds",
        "",
        "          selectors  hotloop-c",
        "select_1    1.00 us     500 ns",
        "",
        "Selectors: speed, selectors = 1; higher is faster",
        "(noise: of the row's noisiest loop, the spread of the middle half of its rounds)",
        "",
        "          selectors  hotloop-c  best other  hotloop-c/best  noise",
        "select_1       1.00       2.00   selectors            2.00     0%",
        "",
        "hotloop-c is 2.52 times as fast as the best other in the geometric mean of 3 rows, at least 2.00 (wait_for)",
        "hotloop-c is 3.17 times as fast as asyncio in the geometric mean of 3 rows, at least 2.00 (select_1)",
        "hotloop-c is 2.00 times as fast as uvloop in the geometric mean of 1 row, at least 2.00 (wait_for)",
        "FAILED: gather_100 on uvloop: Boom",
        "",
    ]


def test_a_loop_that_lacks_a_row_of_the_baseline_has_no_mean(finished_run):
    run = dataclasses.replace(finished_run, baseline="asyncio")
    [event_loops, _] = report.sections(run)
    head, *_, last = report.speeds(run, event_loops)
    means = dict(zip(head, last, strict=True))
    assert (means["asyncio"], means["uvloop"], means["hotloop-c"]) == ("1.00", "-", "4.00")
    assert means["hotloop-c/best"] == "2.83"


def test_a_loop_that_no_row_of_a_table_applies_to_has_no_column_there(finished_run):
    applies_not = NotMeasured("not applicable", "aiofastnet has no part in it")
    failed = NotMeasured("failed", "Boom")
    finished_run.outcomes["wait_for"] |= {"aiofastnet": applies_not, "rloop": failed}
    finished_run.outcomes["gather_100"] |= {"aiofastnet": applies_not, "rloop": failed}
    run = dataclasses.replace(finished_run, facts=finished_run.facts | {"aiofastnet": FACTS, "rloop": FACTS})
    [event_loops, _] = report.sections(run)
    assert event_loops.loops == ["asyncio", "uvloop", "hotloop-c", "rloop"]
    only = dataclasses.replace(run, facts={"aiofastnet": FACTS}, baseline="aiofastnet")
    assert report.sections(only) == []


def test_the_classes_that_ran_are_above_the_table(finished_run):
    facts = FACTS | {"transport": "some.Transport", "TLS": "by calls of OpenSSL"}
    header = report.header(dataclasses.replace(finished_run, facts={"aiofastnet": facts}))
    assert "loop some.Loop; task some.Task; transport some.Transport; TLS by calls of OpenSSL" in header


def test_the_json_document(finished_run):
    document = json.loads(json.dumps(report.as_json(finished_run)))
    assert document.keys() == {
        *("format", "machine", "settings", "loops", "rows"),
        *("comparisons", "network_comparisons", "tls_comparisons", "library_comparisons", "times_of_bare_c"),
    }
    assert document["network_comparisons"] == []
    assert document["times_of_bare_c"] == {}
    assert document["settings"] == {"rounds": 3, "seconds_per_round": 0.15, "baseline": "uvloop"}
    assert document["loops"]["zuvloop"] == {"missing": "No module named 'zuvloop'"}
    assert document["loops"]["uvloop"]["version"] == "1.0"
    wait_for, gather, select = document["rows"]
    assert wait_for["name"] == "wait_for"
    assert wait_for["best_other"] == "uvloop"
    assert wait_for["results"]["uvloop"] == {
        "kind": "measured",
        "operations": 100,
        "seconds": [2e-6],
        "median": 2e-6,
        "spread": 0.0,
    }
    assert gather["results"]["uvloop"] == {"kind": "failed", "reason": "Boom"}
    assert select["results"]["uvloop"]["kind"] == "not applicable"
    assert document["comparisons"][0]["reference"] == "best other"


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.234e-8, "12.3 ns"), (9.999e-7, "1.00 us"), (9.99e-5, "99.9 us"), (0.1234, "123 ms"), (2.5, "2.50 s")],
)
def test_durations_have_three_digits(number, text):
    assert report.duration(number) == text


def test_the_machine_is_described():
    described = machine.describe()
    assert all(described.values())
    assert described["python"].endswith(sys.version.split()[0]) or "free-threaded" in described["python"]


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "nonsense"], "no row fits 'nonsense'"),
        (["--rows", ""], "no row fits ''"),
        (["--loops", "asyncio,trio"], "no loop is called 'trio'; there are asyncio, uvloop,"),
        (["--rounds", "0"], "'0' is not a positive number"),
        (["--rounds", "many"], "'many' is not a positive number"),
        (["--loops", "asyncio", "--baseline", "uvloop"], "uvloop is not among the loops to measure"),
        (["--json", "/nonsense/file.json"], "No such file or directory"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        cli.run(arguments)
    assert error.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("compare.py: ")


def test_list_names_the_rows_and_measures_nothing(capsys):
    assert cli.run(["--list", "--rows", "sleep,gather*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["sleep_0_one_task", "sleep_0_100_tasks", "gather_100"]
    assert lines[2].endswith("What does gather() of 100 coroutines cost?")


def test_rows_are_named_whole_by_pattern_or_in_part():
    def names(patterns):
        return [row.name for row in cli.rows_matching(patterns)]

    assert names("select_100") == ["select_100"]
    assert names("select_1*y") == ["select_100_all_ready", "select_10000_all_ready"]
    assert names("sleep_0_*,wait_for,wait_") == ["sleep_0_one_task", "sleep_0_100_tasks", "wait_for"]
    assert names("10000") == ["select_10000", "select_10000_all_ready"]


def test_loops_may_be_written_with_a_space():
    assert cli.loop_names("hotloop c,asyncio,hotloop-c") == ["hotloop-c", "asyncio"]


def test_the_baseline_is_the_first_preferred_that_runs():
    assert cli.choose_baseline(None, ["asyncio", "uvloop", "hotloop-c"]) == "uvloop"
    assert cli.choose_baseline(None, ["hotloop-c", "asyncio"]) == "asyncio"
    assert cli.choose_baseline(None, ["hotloop-c"]) == "hotloop-c"
    assert cli.choose_baseline("asyncio", ["uvloop", "asyncio"]) == "asyncio"
    with pytest.raises(cli.Unusable, match="the baseline, uvloop, cannot be measured"):
        cli.choose_baseline("uvloop", ["asyncio"])
    with pytest.raises(cli.Unusable, match="none of the loops"):
        cli.choose_baseline(None, [])


def test_the_exit_code_is_1_if_a_requested_loop_is_missing_or_hotloop_failed(finished_run):
    assert cli.exit_code(finished_run, asked_for=[]) == 0
    assert cli.exit_code(finished_run, asked_for=["uvloop"]) == 0
    assert cli.exit_code(finished_run, asked_for=["zuvloop"]) == 1
    outcomes = finished_run.outcomes | {"wait_for": {"hotloop-c": NotMeasured("failed", "Boom")}}
    assert cli.exit_code(dataclasses.replace(finished_run, outcomes=outcomes), asked_for=[]) == 1


@pytest.fixture
def tiny_rounds(monkeypatch):
    monkeypatch.setattr(cli, "QUICK_SECONDS", 0.001)


def test_a_real_run_of_two_rows(tiny_rounds, tmp_path, capsys):
    path = tmp_path / "results.json"
    arguments = ["--quick", "--rounds", "2", "--rows", "call_soon_chain,select_1", "--json", str(path)]
    assert cli.run([*arguments, "--loops", "asyncio,hotloop-python"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(path.read_text())
    assert document["settings"]["baseline"] == "asyncio"
    rows = {row["name"]: row["results"] for row in document["rows"]}
    assert rows.keys() == {"call_soon_chain", "select_1"}
    for found in rows.values():
        assert found.keys() == {"asyncio", "hotloop-python"}
        assert all(len(result["seconds"]) == 2 and min(result["seconds"]) > 0 for result in found.values())
    assert "hotloop-python is " in out
    assert err.splitlines() == ["1/2 call_soon_chain", "2/2 select_1"]


def test_json_is_all_of_the_standard_output(tiny_rounds, capsys):
    assert cli.run(["--quick", "--rounds", "1", "--rows", "call_soon_chain", "--loops", "asyncio", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "call_soon_chain"


def test_an_extension_that_is_asked_for_and_missing_is_no_silent_fallback(tiny_rounds, capsys, monkeypatch):
    broken = dataclasses.replace(TARGETS["hotloop-c"], environment={"HOTLOOP_IMPL": "nonsense"})
    monkeypatch.setitem(cli.TARGETS, "hotloop-c", broken)
    arguments = ["--quick", "--rounds", "1", "--rows", "call_soon_chain", "--loops", "asyncio,hotloop-c"]
    assert cli.run(arguments) == 1
    out, err = capsys.readouterr()
    assert "hotloop-c: not measured: ImportError: HOTLOOP_IMPL must be" in err
    assert "NOT MEASURED: ImportError: HOTLOOP_IMPL must be" in out


def test_the_commit_is_that_of_the_hotloop_that_is_measured():
    assert machine.file_of_hotloop() == Path(hotloop.__file__)


def test_an_installed_copy_has_no_commit(tmp_path):
    copy = tmp_path / "__init__.py"
    copy.touch()
    assert machine.commit(copy) is None
    assert machine.commit(None) is None
