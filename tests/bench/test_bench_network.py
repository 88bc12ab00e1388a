"""The network rows of benchmarks/compare.py, on every installed loop, and their part of the report."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.measured_loops import loops_that_must_do_every_row

from hotloop_bench import cli, load, report, results, runner, targets, timing, worker
from hotloop_bench.load import Load, LoadFailed
from hotloop_bench.results import Measurement, NotMeasured
from hotloop_bench.rows import ROWS, echo, serving
from hotloop_bench.runner import Crew, Settings
from hotloop_bench.targets import BARE_C, TARGETS

NETWORK = [row for row in ROWS.values() if row.subject == "network"]
# The rows of libraries are in test_bench_libraries.py.
USUAL = [row for row in NETWORK if not row.on_request and row.table != "Libraries"]
ROOT = Path(__file__).parents[2]

needs_generator = pytest.mark.skipif(load.unavailable() is not None, reason=str(load.unavailable()))


# -- the rows ----------------------------------------------------------------------------------------------------------


def test_every_network_row_says_which_question_it_answers():
    assert all(row.question.endswith("?") and row.operations > 0 for row in NETWORK)


def test_the_usual_rows_cover_each_dimension_of_the_grid():
    def parts(rows):
        split = [row.name.split("-") for row in rows if row.name.startswith(("echo-tcp", "echo-unix"))]
        return [(network, interface, *load.split("x")) for _, network, interface, load in split]

    usual, grid = parts(USUAL), parts(NETWORK)
    assert (len(usual), len(grid)) == (16, 72)
    for column in range(4):
        assert {row[column] for row in usual} == {row[column] for row in grid}


@pytest.fixture
def maker():
    """Makes asyncio's loops, and remembers them."""

    class Maker:
        made = ()

        def new_event_loop(self):
            self.made += (asyncio.SelectorEventLoop(),)
            return self.made[-1]

    return Maker()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def where_possible(rows):
    """The rows as parameters; a row that this machine cannot measure is skipped."""

    def parameter(row):
        reason = row.unavailable()
        return pytest.param(row, id=row.name, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))

    return [parameter(row) for row in rows]


@pytest.mark.parametrize("row", where_possible(row for row in USUAL if row.calibrated))
def test_a_network_row_does_its_operations_and_cleans_up(maker, row):
    before, threads = descriptors(), set(threading.enumerate())
    with row.opened(maker) as subject:
        for n in (1, 3):
            found = row.run(subject, n)
            assert found.operations == n
            assert found.cpu > 0
            assert found.elapsed > 0
    assert maker.made[0].is_closed()
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)  # asyncio's child watcher of Python 3.11 has a thread for each process, which is at its end now
        assert not thread.is_alive()
    assert descriptors() == before


@pytest.mark.parametrize("row", where_possible(row for row in USUAL if row.bare))
def test_the_bare_server_does_the_same_row(row):
    with row.bare() as subject:
        for n in (1, 3):
            found = row.run(subject, n)
            assert found.operations == n
            assert found.cpu >= 0
            assert found.p50 is None if row.name.startswith("download") else found.p50 <= found.p99


@needs_generator
def test_a_server_that_echoes_wrongly_fails_its_row(maker):
    class Reversed(echo.EchoProtocol):
        def data_received(self, data):
            self.transport.write(data[::-1])

    def serve(loop, network, path):
        return echo.by_protocol(loop, network, path, Reversed)

    with maker_row(serve)(maker) as subject, pytest.raises(LoadFailed, match="wrong echo"):
        subject.run(1)


def maker_row(serve):
    """The `opened` of a row with this server, two connections and messages of 64 bytes."""

    @contextlib.contextmanager
    def opened(maker):
        loop = maker.new_event_loop()
        with contextlib.closing(loop), serving.served(serve, "tcp", 2, 64)(loop) as subject:
            yield subject
            loop.run_until_complete(loop.shutdown_default_executor())

    return opened


@needs_generator
@pytest.mark.parametrize("interface", ["sock", "protocol"])
def test_the_reason_of_a_failed_row_is_the_servers_own_error(interface):
    class Unable(asyncio.SelectorEventLoop):
        async def sock_recv(self, sock, n):
            raise NotImplementedError("no sock_recv() here")

    class Raises(echo.EchoProtocol):
        def data_received(self, data):
            raise NotImplementedError("no data_received() here")

    class Maker:
        def new_event_loop(self):
            return Unable()

    def serve(loop, network, path):
        return (
            echo.by_sock(loop, network, path) if interface == "sock" else echo.by_protocol(loop, network, path, Raises)
        )

    with maker_row(serve)(Maker()) as subject, pytest.raises(NotImplementedError, match=r"no \w+\(\) here"):
        subject.run(1)


def test_a_network_round_is_measured_by_itself():
    said = Load(7, 0.5, 1.0)
    assert timing.sample(lambda subject, n: said, None, 7).load is said
    assert timing.sample(lambda subject, n: n, None, 7).load is None


# -- the runner --------------------------------------------------------------------------------------------------------


class ScriptedWorker:
    """Answers like a worker, each round with the next of `loads`."""

    missing = None

    def __init__(self, target, loads):
        self.target, self.loads, self.asked = target, itertools.cycle(loads), []
        self.facts = {"version": "1.0", "loop": f"{target.module}.Loop"}

    def request(self, **request):
        self.asked.append(request)
        if "row" in request:
            return {"operations": 10}
        return {"closed": "row"} if "close" in request else {"load": vars(next(self.loads))}

    def stop(self):
        pass


LOADS = [Load(99, 9.0, 9.0), Load(10, 1.0, 2.0, 0.1, 0.2), Load(20, 4.0, 5.0, 0.3, 0.4)]
SETTINGS = Settings(rounds=2, seconds=0.1)


def always(reason):
    return dataclasses.replace(ROWS["echo-udp-32x512B"], unavailable=lambda: reason)


def test_processor_time_is_for_one_operation_and_the_first_round_dropped():
    with Crew([TARGETS["asyncio"], BARE_C], lambda target: ScriptedWorker(target, LOADS)) as crew:
        outcomes = crew.measure(always(None), SETTINGS)
        asked = crew.workers["asyncio"].asked
    assert outcomes.keys() == {"asyncio", "bare-c"}
    found = outcomes["asyncio"]
    assert found.seconds == [pytest.approx(0.1), pytest.approx(0.2)]
    assert found.loads == LOADS[1:]
    assert (found.rate, found.p50, found.p99) == (4.5, pytest.approx(0.2), pytest.approx(0.3))
    assert asked[0] == {"row": "echo-udp-32x512B", "seconds": 0.2}


def test_a_row_that_this_machine_cannot_measure_says_why_for_each_loop():
    with Crew([TARGETS["asyncio"], BARE_C], lambda target: ScriptedWorker(target, LOADS)) as crew:
        outcomes = crew.measure(always("no compiler"), SETTINGS)
        assert not crew.workers["asyncio"].asked
    assert outcomes == dict.fromkeys(("asyncio", "bare-c"), NotMeasured("unavailable", "no compiler"))


def test_the_bare_server_is_in_the_rows_it_can_do():
    with Crew([TARGETS["asyncio"], BARE_C], lambda target: ScriptedWorker(target, LOADS)) as crew:
        assert crew.measure(ROWS["getaddrinfo-literal"], SETTINGS)["bare-c"].kind == "not applicable"


def test_the_bare_server_is_in_no_row_of_loops():
    class Worker(ScriptedWorker):
        def request(self, **request):
            return {"seconds": 1.0} if "round" in request else super().request(**request)

    with Crew([TARGETS["asyncio"], BARE_C], lambda target: Worker(target, LOADS)) as crew:
        assert crew.measure(ROWS["wait_for"], SETTINGS).keys() == {"asyncio"}


def test_the_bare_server_is_never_the_best_other():
    outcomes = {name: Measurement(1, [time]) for name, time in (("bare-c", 1.0), ("uvloop", 3.0), ("hotloop-c", 2.0))}
    assert results.best_other(outcomes) == "uvloop"
    assert results.processor_time_over_limit(outcomes, "hotloop-c") == 2.0
    assert results.processor_time_over_limit({"hotloop-c": Measurement(1, [1.0])}, "hotloop-c") is None
    assert "bare-c" not in {found.reference for found in results.comparisons({"row": outcomes}, list(outcomes))}
    with pytest.raises(SystemExit):
        cli.run(["--loops", "bare-c"])


@needs_generator
def test_the_workers_measure_a_network_row():
    with Crew([TARGETS["asyncio"], BARE_C]) as crew:
        assert crew.facts["bare-c"]["version"]
        outcomes = crew.measure(ROWS["echo-tcp-protocol-32x1KiB"], Settings(rounds=2, seconds=0.005))
    for name in ("asyncio", "bare-c"):
        assert len(outcomes[name].loads) == 2
        assert min(outcomes[name].seconds) > 0
        assert outcomes[name].p50 <= outcomes[name].p99


@needs_generator
def test_a_profiler_can_run_a_network_row(capsys):
    for target in (TARGETS["asyncio"], BARE_C):
        worker.run_once(target, ROWS["echo-unix-protocol-32x1KiB"], 100)
        assert "version" in json.loads(capsys.readouterr().out)


@needs_generator
def test_every_usual_row_runs_on_every_loop_that_is_installed():
    failures = []
    with Crew([*TARGETS.values(), BARE_C]) as crew:
        assert loops_that_must_do_every_row() <= crew.facts.keys()
        for row in USUAL:
            for name, outcome in crew.measure(row, Settings(rounds=1, seconds=0.001)).items():
                if isinstance(outcome, Measurement):
                    assert len(outcome.seconds) == 1
                    continue
                assert outcome.reason
                if name in loops_that_must_do_every_row() and outcome.kind in ("failed", "not offered"):
                    failures.append(f"{row.name} on {name}: {outcome.reason}")
    assert failures == []


# -- the report --------------------------------------------------------------------------------------------------------


def on_network(*cpu, rate=1000.0, p50=None, p99=None):
    return Measurement(10, list(cpu), [Load(10, 10 * seconds, 10 / rate, p50, p99) for seconds in cpu])


@pytest.fixture
def finished_run():
    facts = {"version": "1.0", "loop": "some.Loop", "task": "some.Task"}
    rows = ["echo-tcp-protocol-32x1KiB", "echo-tcp-streams-32x1KiB", "getaddrinfo-literal", "sendfile-100MiB"]
    unavailable = NotMeasured("unavailable", "there is no sendfile() here")
    return report.Run(
        machine={"processor": "abacus"},
        facts={"asyncio": facts, "uvloop": facts, "hotloop-c": facts, "bare-c": {"version": "cc 1.0"}},
        missing={},
        baseline="uvloop",
        rounds=3,
        seconds=0.15,
        rows=[ROWS[name] for name in rows],
        outcomes={
            "echo-tcp-protocol-32x1KiB": {
                "asyncio": on_network(9e-6, rate=50_000, p50=5e-4, p99=9e-4),
                "uvloop": on_network(6e-6, rate=80_000, p50=3e-4, p99=6e-4),
                "hotloop-c": on_network(3e-6, rate=123_456.7, p50=2e-4, p99=2.5e-3),
                "bare-c": on_network(2e-6, rate=200_000, p50=1e-4, p99=2e-4),
            },
            "echo-tcp-streams-32x1KiB": {
                "asyncio": on_network(2e-5, rate=40_000, p50=5e-4, p99=9e-4),
                "uvloop": NotMeasured("failed", "NotImplementedError"),
                "hotloop-c": on_network(1e-5, rate=50_000, p50=2e-4, p99=2.5e-3),
                "bare-c": on_network(2e-6, rate=200_000, p50=1e-4, p99=2e-4),
            },
            "getaddrinfo-literal": {
                "asyncio": on_network(1e-4, rate=10_000),
                "uvloop": on_network(2e-6, rate=500_000),
                "hotloop-c": on_network(1e-6, rate=9.876),
                "bare-c": NotMeasured("not applicable", "there is no bare C server for it"),
            },
            "sendfile-100MiB": dict.fromkeys(("asyncio", "uvloop", "hotloop-c", "bare-c"), unavailable),
        },
    )


def test_the_text_in_full(finished_run):
    assert report.text(finished_run).split("\n") == [
        "processor:       abacus",
        "asyncio:         1.0; loop some.Loop; task some.Task",
        "uvloop:          1.0; loop some.Loop; task some.Task",
        "hotloop-c:       1.0; loop some.Loop; task some.Task",
        "bare-c:          cc 1.0",
        "",
        "Network: processor time of the measured process for one operation, median of 3 rounds",
        "",
        "                           asyncio   uvloop  hotloop-c   bare-c",
        "echo-tcp-protocol-32x1KiB  9.00 us  6.00 us    3.00 us  2.00 us",
        "echo-tcp-streams-32x1KiB   20.0 us   failed    10.0 us  2.00 us",
        "getaddrinfo-literal         100 us  2.00 us    1.00 us        -",
        "sendfile-100MiB                  -        -          -        -",
        "",
        "Network: operations a second, median of the rounds",
        "",
        "                           asyncio   uvloop  hotloop-c   bare-c",
        "echo-tcp-protocol-32x1KiB   50,000   80,000    123,457  200,000",
        "echo-tcp-streams-32x1KiB    40,000        -     50,000  200,000",
        "getaddrinfo-literal         10,000  500,000       9.88        -",
        "sendfile-100MiB                  -        -          -        -",
        "",
        "Network: latency for the clients, p50 / p99, median of the rounds",
        "",
        "                                   asyncio           uvloop         hotloop-c           bare-c",
        "echo-tcp-protocol-32x1KiB  500 us / 900 us  300 us / 600 us  200 us / 2.50 ms  100 us / 200 us",
        "echo-tcp-streams-32x1KiB   500 us / 900 us                -  200 us / 2.50 ms  100 us / 200 us",
        "",
        "Network: operations for the same processor time, uvloop = 1; higher is faster",
        "(noise: of the row's noisiest loop, the spread of the middle half of its rounds;"
        " CPU/bare-c: hotloop-c's processor time over the bare C server's)",
        "",
        "                           asyncio  uvloop  hotloop-c  best other  hotloop-c/best  CPU/bare-c  noise",
        "echo-tcp-protocol-32x1KiB     0.67    1.00       2.00      uvloop            2.00        1.50     0%",
        "echo-tcp-streams-32x1KiB         -       -          -     asyncio            2.00           -     0%",
        "getaddrinfo-literal           0.02    1.00       2.00      uvloop            2.00           -     0%",
        "sendfile-100MiB                  -       -          -           -               -           -      -",
        "geometric mean                0.12    1.00       2.00                        2.00        1.50",
        "",
        "Network: hotloop-c is 2.00 times as fast as the best other in the geometric mean of 3 rows, at least 2.00"
        " (echo-tcp-protocol-32x1KiB)",
        "Network: hotloop-c is 8.43 times as fast as asyncio in the geometric mean of 3 rows, at least 2.00"
        " (echo-tcp-streams-32x1KiB)",
        "Network: hotloop-c is 2.00 times as fast as uvloop in the geometric mean of 2 rows, at least 2.00"
        " (echo-tcp-protocol-32x1KiB)",
        "Network: hotloop-c takes 1.50 times the processor time of the bare C server in the geometric mean of"
        " 1 protocol row, at most 1.50 (echo-tcp-protocol-32x1KiB)",
        "NOT MEASURED: sendfile-100MiB: there is no sendfile() here",
        "FAILED: echo-tcp-streams-32x1KiB on uvloop: NotImplementedError",
        "",
    ]


def test_the_json_document(finished_run):
    document = json.loads(json.dumps(report.as_json(finished_run)))
    protocol, _, lookup, sending = document["rows"]
    assert protocol["best_other"] == "uvloop"
    assert protocol["results"]["hotloop-c"]["median"] == 3e-6
    assert protocol["results"]["hotloop-c"]["load"] == {
        "operations_per_second": [pytest.approx(123_456.7)],
        "p50": [2e-4],
        "p99": [2.5e-3],
    }
    assert lookup["results"]["uvloop"]["load"]["p50"] == [None]
    assert sending["results"]["bare-c"] == {"kind": "unavailable", "reason": "there is no sendfile() here"}
    assert document["comparisons"] == []
    assert document["network_comparisons"][0]["rows"] == 3
    assert document["times_of_bare_c"] == {"echo-tcp-protocol-32x1KiB": pytest.approx(1.5)}


def test_a_row_without_a_compiler_is_no_failure(finished_run):
    assert cli.exit_code(finished_run, asked_for=["hotloop-c"]) == 0


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_grid_is_measured_on_request(capsys):
    def names(*arguments):
        assert cli.run(["--list", *arguments]) == 0
        return [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    assert "echo-tcp-protocol-32x1KiB" in names()
    assert "echo-tcp-protocol-32x128B" not in names()
    assert names("--all") == list(ROWS)
    assert names("--rows", "echo-tcp-protocol-32x128B") == ["echo-tcp-protocol-32x128B"]
    assert names("--rows", "unix-buffered-1x1") == ["echo-unix-buffered-1x128B", "echo-unix-buffered-1x1KiB"]
    assert names("--rows", "tcp-protocol") == [row.name for row in USUAL if "tcp-protocol" in row.name]
    assert len(names("--rows", "tcp-protocol", "--all")) == 9
    assert len(names("--rows", "echo-unix-*", "--all")) == 36


@needs_generator
def test_a_real_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "QUICK_SECONDS", 0.001)
    rows = "echo-tcp-protocol-1x128B,getaddrinfo-literal,call_soon_chain"
    path = tmp_path / "results.json"
    arguments = ["--quick", "--rounds", "1", "--rows", rows, "--loops", "asyncio", "--json", os.fspath(path)]
    assert cli.run(arguments) == 0
    found = {row["name"]: row["results"] for row in json.loads(path.read_text())["rows"]}
    assert found["echo-tcp-protocol-1x128B"].keys() == {"asyncio", "bare-c"}
    assert found["getaddrinfo-literal"]["bare-c"]["kind"] == "not applicable"
    assert found["call_soon_chain"].keys() == {"asyncio"}
    out = capsys.readouterr().out
    assert "\nbare-c:          " in out
    assert "\nNetwork: processor time" in out


def test_a_run_without_a_compiler_says_so(capsys, monkeypatch, fresh_programs):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(cli, "QUICK_SECONDS", 0.001)
    monkeypatch.setenv("CC", "no-such-compiler")
    rows = "echo-tcp-protocol-1x128B,getaddrinfo-literal"
    assert cli.run(["--quick", "--rounds", "1", "--rows", rows, "--loops", "asyncio"]) == 0
    out, err = capsys.readouterr()
    reason = "the load generator needs a C compiler, and 'no-such-compiler' was not found"
    assert f"bare-c: not measured: NoLoadGenerator: {reason}" in err
    assert f"bare-c:          NOT MEASURED: NoLoadGenerator: {reason}" in out
    assert f"NOT MEASURED: echo-tcp-protocol-1x128B: {reason}" in out


# -- idle connections --------------------------------------------------------------------------------------------------

IDLE_SCRIPT = ROOT / "benchmarks" / "idle_connections.py"


def idle_script(*arguments):
    command = [sys.executable, os.fspath(IDLE_SCRIPT), *arguments]
    environ = runner.environment(TARGETS["asyncio"])
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@needs_generator
@pytest.mark.parametrize("loop", ["asyncio", "hotloop-python"])
def test_idle_connections_are_measured(loop):
    few = ("--idle", "300", "--active", "3", "--rounds", "1", "--seconds", "0.02")
    done = idle_script("--loop", loop, *few, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["loop"], found["idle"], found["idle_wanted"], found["active"]) == (loop, 300, 300, 3)
    assert found["memory_of_a_protocol"] >= object.__sizeof__(object())
    assert found["p99_alone"] > 0
    assert found["slowdown"] == pytest.approx(found["p99_with_idle"] / found["p99_alone"])


@needs_generator
def test_the_idle_report_for_people():
    done = idle_script("--loop", "asyncio", "--idle", "50", "--active", "2", "--rounds", "1", "--seconds", "0.01")
    assert done.returncode == 0, done.stderr
    assert "An idle connection takes " in done.stdout
    assert "p99 of the active ones: " in done.stdout


@needs_generator
def test_too_few_descriptors_for_idle_connections_are_said_in_one_line():
    few = ("--idle", "50", "--active", "2", "--rounds", "1", "--seconds", "0.01")
    limited = f"ulimit -n 302 && exec {shlex.join([sys.executable, os.fspath(IDLE_SCRIPT), '--loop', 'asyncio', *few])}"
    environ = runner.environment(TARGETS["asyncio"])
    done = subprocess.run(["sh", "-c", limited], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "idle_connections.py: asyncio: not measured: the hard limit on descriptors, ulimit -Hn, is 302;"
        " more than 302 are needed\n"
    )


def test_a_loop_that_is_missing_has_no_idle_report():
    command = [sys.executable, os.fspath(IDLE_SCRIPT), "--loop", "asyncio"]
    environ = runner.environment(TARGETS["asyncio"]) | {"CC": "no-such-compiler"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "asyncio: not measured: the load generator needs" in done.stderr


def test_the_targets_know_the_bare_server():
    assert BARE_C.name == results.LIMIT
    assert BARE_C.name not in TARGETS
    targets.check(BARE_C, {"version": "1.0"})
