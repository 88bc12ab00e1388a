"""`python -m hotloop bench`: how it measures, what it makes of it, and what it says; never how fast anything is."""

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import selectors
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop import bench
from hotloop.bench import cli, machine, report, results, runner, targets, timing
from hotloop.bench.results import Measurement, NotMeasured
from hotloop.bench.rows import ROWS
from hotloop.bench.runner import Crew, RequestFailed, Settings, WorkerLost
from hotloop.bench.targets import TARGETS, WrongImplementation

FACTS = {"version": "1.0", "loop": "some.Loop", "task": "some.Task"}


def seconds(*values):
    return Measurement(100, list(values))


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_row_says_which_question_it_answers(row):
    assert "?" in row.question
    assert row.operations > 0


@dataclasses.dataclass
class CountingMaker:
    """Makes asyncio's own loops and selectors; remembers the last one."""

    made: object = None

    def new_event_loop(self):
        self.made = asyncio.SelectorEventLoop()
        return self.made

    def new_selector(self):
        self.made = selectors.DefaultSelector()
        return self.made


@pytest.mark.parametrize("n", [1, 7, 250])
@pytest.mark.parametrize(
    "row",
    # The network rows are in test_bench_network.py.
    [row for row in ROWS.values() if row.subject != "network" and "10000" not in row.name],
    ids=lambda row: row.name,
)
def test_a_row_runs_with_any_number_of_operations_and_can_be_repeated(row, n):
    with row.opened(CountingMaker()) as subject:
        row.run(subject, n)
        row.run(subject, n)


def test_a_row_cleans_up_its_loop_and_its_selector():
    for name in ("run_in_executor", "select_100"):
        maker = CountingMaker()
        with ROWS[name].opened(maker) as subject:
            ROWS[name].run(subject, 3)
            assert subject is maker.made
        if isinstance(maker.made, asyncio.AbstractEventLoop):
            assert maker.made.is_closed()
        else:
            assert maker.made.get_map() is None


def test_callback_rows_do_as_many_operations_as_asked():
    calls = []

    class Loop(asyncio.SelectorEventLoop):
        def call_soon(self, callback, *args, context=None):
            calls.append(args)
            return super().call_soon(callback, *args, context=context)

    with contextlib.closing(Loop()) as loop:
        ROWS["call_soon_batches"].run(loop, 250)
    assert calls.count((1, 2, 3)) == 250


def test_too_many_descriptors_are_refused_with_the_limit():
    resource = pytest.importorskip("resource", reason="no such limit on this platform")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system sets no hard limit on descriptors")
    from hotloop.bench.rows.polling import descriptors_allowed

    with pytest.raises(OSError, match=f"hard limit .* is {hard}"), descriptors_allowed(hard + 1):
        pass


# -- timing ------------------------------------------------------------------------------------------------------------


class Clockwork:
    """Pretends that every operation takes `cost` and every round `constant` seconds more."""

    def __init__(self, cost, constant=0.0, hiccups=()):
        self.cost, self.constant, self.hiccups = cost, constant, list(hiccups)
        self.spent = 0.0

    def __call__(self, n):
        elapsed = self.constant + n * self.cost + (self.hiccups.pop(0) if self.hiccups else 0.0)
        self.spent += elapsed
        return elapsed


@pytest.mark.parametrize("cost", [1e-9, 1e-7, 1e-5, 1e-3])
def test_calibration_finds_a_round_of_the_wanted_length(cost):
    clockwork = Clockwork(cost)
    assert timing.calibrated(clockwork, 0.15) * cost == pytest.approx(0.15, rel=0.01)
    assert clockwork.spent < 1.0


def test_calibration_of_an_operation_longer_than_a_round():
    assert timing.calibrated(Clockwork(2.0), 0.15) == 1


def test_calibration_is_not_misled_by_a_constant_cost():
    n = timing.calibrated(Clockwork(1e-6, constant=0.001), 0.15)
    assert 0.14 <= n * 1e-6 <= 0.16


def test_calibration_is_not_misled_by_hiccups():
    n = timing.calibrated(Clockwork(1e-6, hiccups=[0, 0.5, 0.2]), 0.15)
    assert n * 1e-6 == pytest.approx(0.15, rel=0.01)


def test_calibration_with_a_clock_that_stands_still_at_first():
    assert timing.calibrated(lambda n: 0.0 if n < 1000 else n * 1e-4, 0.1) == 1000


# -- results -----------------------------------------------------------------------------------------------------------

OUTCOMES = {
    "asyncio": seconds(4.0, 4.0, 4.0),
    "uvloop": seconds(2.0, 1.0, 2.0, 3.0, 90.0),
    "rloop": NotMeasured("failed", "no timers"),
    "hotloop-c": seconds(0.5),
    "hotloop-python": seconds(5.0),
}


def test_a_median_forgets_outliers():
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


def test_geometric_mean_of_what_there_is():
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


# -- the runner --------------------------------------------------------------------------------------------------------


class ScriptedWorker:
    """Answers as a worker would. `rounds` are its times; an exception among them is raised."""

    journal: list

    def __init__(self, target, rounds=(1.0,), missing=None, facts=FACTS):
        self.target, self.rounds, self.missing = target, list(rounds), missing
        self.facts = {} if missing else facts
        self.stopped = False

    def request(self, **request):
        self.journal.append((self.target.name, next(iter(request))))
        if "row" in request:
            return {"operations": 10}
        if "close" in request:
            return {"closed": "row"}
        value = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        if isinstance(value, Exception):
            raise value
        return {"seconds": value}

    def stop(self):
        self.stopped = True


@pytest.fixture
def crew_of():
    """crew_of(name=keywords of a ScriptedWorker, ...)"""
    started, journal = [], []

    def make(**workers):
        keywords = {name.replace("_", "-"): keywords for name, keywords in workers.items()}

        def start(target):
            worker = ScriptedWorker(target, **keywords[target.name])
            worker.journal = journal
            started.append(worker)
            return worker

        crew = Crew([TARGETS[name] for name in keywords], start)
        crew.journal, crew.started = journal, started
        return crew

    yield make
    assert all(worker.stopped for worker in started)


def test_rounds_go_around_the_loops_and_another_one_begins_each(crew_of):
    with crew_of(asyncio={}, uvloop={}, rloop={}) as crew:
        crew.measure(ROWS["wait_for"], Settings(rounds=2, seconds=0.1))
    order = [name for name, request in crew.journal if request == "round"]
    assert order == ["asyncio", "uvloop", "rloop", "uvloop", "rloop", "asyncio", "rloop", "asyncio", "uvloop"]


def test_the_first_round_is_dropped_and_times_are_for_one_operation(crew_of):
    with crew_of(asyncio={"rounds": [99.0, 1.0, 2.0, 3.0]}) as crew:
        outcome = crew.measure(ROWS["wait_for"], Settings(rounds=3, seconds=0.1))["asyncio"]
    assert outcome == Measurement(10, [0.1, 0.2, 0.3])


def test_selector_rows_pass_over_loops_without_a_selector(crew_of):
    with crew_of(asyncio={}, uvloop={}) as crew:
        outcomes = crew.measure(ROWS["select_1"], Settings(rounds=1, seconds=0.1))
    assert outcomes["uvloop"].kind == "not applicable"
    assert isinstance(outcomes["asyncio"], Measurement)


def test_a_row_that_fails_on_one_loop_goes_on_with_the_others(crew_of):
    with crew_of(asyncio={}, uvloop={"rounds": [1.0, RequestFailed("NotImplementedError"), 1.0]}) as crew:
        outcomes = crew.measure(ROWS["wait_for"], Settings(rounds=3, seconds=0.1))
    assert outcomes["uvloop"] == NotMeasured("failed", "NotImplementedError")
    assert len(outcomes["asyncio"].seconds) == 3
    assert len(crew.started) == 2  # the worker itself is still good


def test_a_lost_worker_is_replaced(crew_of):
    with crew_of(asyncio={}, uvloop={"rounds": [WorkerLost("killed")]}) as crew:
        outcomes = crew.measure(ROWS["wait_for"], Settings(rounds=2, seconds=0.1))
        assert outcomes["uvloop"] == NotMeasured("failed", "killed")
        assert crew.workers["uvloop"] is crew.started[2]


def test_missing_loops_are_kept_with_their_reason(crew_of):
    with crew_of(asyncio={}, zuvloop={"missing": "No module named 'zuvloop'"}) as crew:
        assert crew.missing == {"zuvloop": "No module named 'zuvloop'"}
        assert list(crew.facts) == ["asyncio"]


def test_a_worker_that_runs_the_wrong_implementation_ends_the_run(crew_of):
    facts = FACTS | {"core": "hotloop._pure.core.LoopCore", "task": "hotloop._pure.task.Task"}
    with pytest.raises(WrongImplementation, match=r"hotloop-c was asked for, .* hotloop\._pure\.core"):
        crew_of(hotloop_c={"facts": facts})


@pytest.mark.parametrize(
    ("name", "core", "task", "right"),
    [
        ("hotloop-c", "hotloop._c.core.LoopCore", "hotloop._c.task.Task", True),
        ("hotloop-c", "hotloop._c.core.LoopCore", "_asyncio.Task", False),
        ("hotloop-python", "hotloop._pure.core.LoopCore", f"{asyncio.Task.__module__}.Task", True),
        ("hotloop-python", "hotloop._pure.core.LoopCore", "hotloop._pure.task.Task", False),
        ("hotloop-python", "hotloop._c.core.LoopCore", f"{asyncio.Task.__module__}.Task", False),
    ],
)
def test_what_ran_must_be_what_the_column_is_called(name, core, task, right):
    with contextlib.nullcontext() if right else pytest.raises(WrongImplementation):
        targets.check(TARGETS[name], FACTS | {"core": core, "task": task})


# -- real workers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker_of():
    with contextlib.ExitStack() as stack:

        def start(target):
            worker = runner.Worker(target)
            stack.callback(worker.stop)
            return worker

        yield start


def test_a_worker_measures_a_row(worker_of):
    worker = worker_of(TARGETS["asyncio"])
    assert worker.missing is None
    assert worker.facts["selector"].startswith("selectors.")
    assert worker.request(row="call_soon_chain", seconds=0.001)["operations"] >= 1
    assert worker.request(round=True)["seconds"] > 0
    assert worker.request(close=True) == {"closed": "call_soon_chain"}


def test_a_worker_survives_a_request_that_fails(worker_of):
    worker = worker_of(TARGETS["asyncio"])
    with pytest.raises(RequestFailed, match="KeyError: 'nonsense'"):
        worker.request(row="nonsense", seconds=0.001)
    assert worker.request(row="wait_for", seconds=0.001)["operations"] >= 1


def test_a_worker_without_its_module_says_so(worker_of):
    # A target that the worker knows by its name, in an environment where its module cannot be imported.
    target = dataclasses.replace(TARGETS["hotloop-c"], environment={"HOTLOOP_IMPL": "nonsense"})
    assert "HOTLOOP_IMPL must be" in worker_of(target).missing


def test_the_last_words_of_a_worker_that_dies(worker_of):
    target = dataclasses.replace(TARGETS["asyncio"], name="no such loop")
    assert worker_of(target).missing == "its process ended with code 1: KeyError: 'no such loop'"


def test_a_worker_that_hangs_is_killed(worker_of, monkeypatch):
    worker = worker_of(TARGETS["asyncio"])
    monkeypatch.setattr(runner, "SECONDS_BEFORE_A_WORKER_HANGS", 0.1)
    with pytest.raises(WorkerLost, match=r"no answer in 0\.1 s"):
        worker.request(row="call_soon_chain", seconds=1000)
    with pytest.raises(WorkerLost):
        worker.request(round=True)


def test_the_python_target_is_the_fallback_even_where_the_extension_is_built(worker_of):
    worker = worker_of(TARGETS["hotloop-python"])
    targets.check(worker.target, worker.facts)
    assert worker.facts["task"] == f"{asyncio.Task.__module__}.Task"


def test_nothing_of_hotloop_is_loaded_beside_another_loop():
    source = (
        "import sys; import hotloop.bench.worker\n"
        "print(*(name for name in sys.modules if name.startswith('hotloop') and not name.startswith('hotloop.bench')))"
    )
    environ = runner.environment(TARGETS["asyncio"])
    done = subprocess.run([sys.executable, "-c", source], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hotloop"]


def test_the_environment_does_not_leak_into_the_workers(monkeypatch):
    monkeypatch.setenv("HOTLOOP_IMPL", "python")
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    assert runner.environment(TARGETS["hotloop-c"])["HOTLOOP_IMPL"] == "c"
    assert not {"HOTLOOP_IMPL", "PYTHONASYNCIODEBUG"} & runner.environment(TARGETS["uvloop"]).keys()


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
        "geometric mean     0.50    1.00       2.00                        2.83",
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


def test_the_json_document(finished_run):
    document = json.loads(json.dumps(report.as_json(finished_run)))
    assert document.keys() == {
        *("format", "machine", "settings", "loops", "rows"),
        *("comparisons", "network_comparisons", "times_of_bare_c"),
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
        bench.main(arguments)
    assert error.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("python -m hotloop bench: ")


def test_list_names_the_rows_and_measures_nothing(capsys):
    assert bench.main(["--list", "--rows", "sleep,gather*"]) == 0
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


def test_the_exit_code_tells_what_was_asked_for_and_did_not_run(finished_run):
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
    assert bench.main([*arguments, "--loops", "asyncio,hotloop-python"]) == 0
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


def test_json_on_the_standard_output_is_all_there(tiny_rounds, capsys):
    assert (
        bench.main(["--quick", "--rounds", "1", "--rows", "call_soon_chain", "--loops", "asyncio", "--json", "-"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "call_soon_chain"


def test_an_extension_that_is_asked_for_and_missing_is_no_silent_fallback(tiny_rounds, capsys, monkeypatch):
    broken = dataclasses.replace(TARGETS["hotloop-c"], environment={"HOTLOOP_IMPL": "nonsense"})
    monkeypatch.setitem(cli.TARGETS, "hotloop-c", broken)
    arguments = ["--quick", "--rounds", "1", "--rows", "call_soon_chain", "--loops", "asyncio,hotloop-c"]
    assert bench.main(arguments) == 1
    out, err = capsys.readouterr()
    assert "hotloop-c: not measured: ImportError: HOTLOOP_IMPL must be" in err
    assert "NOT MEASURED: ImportError: HOTLOOP_IMPL must be" in out


def test_the_commit_is_that_of_the_source_tree(tmp_path, monkeypatch):
    package = Path(machine.__file__).parent
    copy = tmp_path / "machine.py"
    copy.write_text((package / "machine.py").read_text())
    monkeypatch.setattr(machine, "__file__", os.fspath(copy))
    assert machine.commit() is None
