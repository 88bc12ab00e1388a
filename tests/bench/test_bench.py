"""benchmarks/compare.py: its rows, timing, runner and workers. No test depends on how fast anything is."""

import asyncio
import contextlib
import dataclasses
import os
import re
import selectors
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hotloop
from hotloop_bench import runner, targets, timing, worker
from hotloop_bench.databases.process import SECONDS_TO_START
from hotloop_bench.identity import SECONDS_TO_MAKE
from hotloop_bench.results import Measurement, NotMeasured
from hotloop_bench.rows import ROWS
from hotloop_bench.runner import Crew, RequestFailed, Settings, WorkerLost
from hotloop_bench.targets import TARGETS, WrongImplementation

SOURCES = {".py", ".pyx", ".pxd"}
FACTS = {"version": "1.0", "task": "some.Task"}


def facts_of(name, **others):
    """What a worker of this target says about itself, as far as all say the same."""
    return FACTS | {"loop": f"{TARGETS[name].module}.Loop"} | others


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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no sched_setaffinity()")
def test_a_row_that_takes_turns_runs_on_one_core_and_later_rows_on_all():
    before = os.sched_getaffinity(0)
    started = threading.Event()
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (started.set(), ended.wait()))
    thread.start()
    started.wait()
    try:
        with worker.opened(ROWS["run_in_executor"], CountingMaker()) as loop:
            cores = [os.sched_getaffinity(0), os.sched_getaffinity(thread.native_id)]
            cores.append(loop.run_until_complete(loop.run_in_executor(None, os.sched_getaffinity, 0)))
        assert cores == [{min(before)}] * 3
        assert os.sched_getaffinity(0) == os.sched_getaffinity(thread.native_id) == before
    finally:
        ended.set()
        thread.join()


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
    from hotloop_bench.rows.polling import descriptors_allowed

    with pytest.raises(OSError, match=f"hard limit .* is {hard}"), descriptors_allowed(hard + 1):
        pass


# -- timing ------------------------------------------------------------------------------------------------------------


class Clockwork:
    """Pretends that an operation takes `cost` seconds, and a round `constant` seconds more."""

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


def test_calibration_with_a_clock_that_does_not_move_at_first():
    assert timing.calibrated(lambda n: 0.0 if n < 1000 else n * 1e-4, 0.1) == 1000


# -- the runner --------------------------------------------------------------------------------------------------------


class ScriptedWorker:
    """Answers like a worker. `rounds` are its times; it raises an exception among them."""

    journal: list

    def __init__(self, target, rounds=(1.0,), missing=None, facts=None):
        self.target, self.rounds, self.missing = target, list(rounds), missing
        self.facts = {} if missing else facts or facts_of(target.name)
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


def test_aiofastnet_is_measured_where_it_has_a_part(crew_of):
    facts = facts_of("aiofastnet-uvloop", transport="aiofastnet.selector_transport.SelectorSocketTransport")
    with crew_of(uvloop={}, aiofastnet_uvloop={"facts": facts}) as crew:
        for name in ("wait_for", "getaddrinfo-literal", "subprocess-spawn-wait", "tornado-wrk-32"):
            row = dataclasses.replace(ROWS[name], unavailable=lambda: None)
            outcomes = crew.measure(row, Settings(rounds=1, seconds=0.1))
            assert outcomes["aiofastnet-uvloop"] == NotMeasured("not applicable", "aiofastnet has no part in it"), name
        for name in ("echo-tcp-streams-32x1KiB", "echo-tls-protocol-32x1KiB", "echo-tcp-sock-32x1KiB"):
            row = dataclasses.replace(ROWS[name], unavailable=lambda: None)
            outcomes = crew.measure(row, Settings(rounds=1, seconds=0.1))
            assert isinstance(outcomes["aiofastnet-uvloop"], Measurement), name


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
    core, task = "hotloop._pure.loop.loop_core.LoopCore", "hotloop._pure.tasks.task.Task"
    facts = facts_of("hotloop-c", core=core, task=task)
    with pytest.raises(WrongImplementation, match=r"hotloop-c was asked for, .* hotloop\._pure\.loop\.loop_core"):
        crew_of(hotloop_c={"facts": facts})


@pytest.mark.parametrize(
    ("name", "core", "task", "right"),
    [
        ("hotloop-c", "hotloop._c.loop.loop_core.LoopCore", "hotloop._c.tasks.task.Task", True),
        ("hotloop-c", "hotloop._c.loop.loop_core.LoopCore", "_asyncio.Task", False),
        ("hotloop-python", "hotloop._pure.loop.loop_core.LoopCore", f"{asyncio.Task.__module__}.Task", True),
        ("hotloop-python", "hotloop._pure.loop.loop_core.LoopCore", "hotloop._pure.tasks.task.Task", False),
        ("hotloop-python", "hotloop._c.loop.loop_core.LoopCore", f"{asyncio.Task.__module__}.Task", False),
    ],
)
def test_a_worker_must_run_the_implementation_of_its_column(name, core, task, right):
    with contextlib.nullcontext() if right else pytest.raises(WrongImplementation):
        targets.check(TARGETS[name], facts_of(name, core=core, task=task))


@pytest.mark.parametrize(
    ("name", "loop", "right"),
    [
        ("asyncio", "asyncio.unix_events._UnixSelectorEventLoop", True),
        ("asyncio", "uvloop.Loop", False),
        ("uvloop", "uvloop.Loop", True),
        ("uvloop", "asyncio.unix_events._UnixSelectorEventLoop", False),
    ],
)
def test_a_loop_must_be_of_the_package_of_its_column(name, loop, right):
    with contextlib.nullcontext() if right else pytest.raises(WrongImplementation, match=f"^{name} was asked for"):
        targets.check(TARGETS[name], facts_of(name, loop=loop))


@pytest.mark.parametrize(
    ("name", "transport", "right"),
    [
        ("aiofastnet", "aiofastnet.selector_transport.SelectorSocketTransport", True),
        ("aiofastnet", "asyncio.selector_events._SelectorSocketTransport", False),
        ("aiofastnet-uvloop", "uvloop.loop.TCPTransport", False),
        ("aiofastnet-zuvloop", None, False),
    ],
)
def test_the_transports_of_aiofastnets_columns_must_be_its_own(name, transport, right):
    with contextlib.nullcontext() if right else pytest.raises(WrongImplementation, match=f"^{name} was asked for"):
        targets.check(TARGETS[name], facts_of(name, **({"transport": transport} if transport else {})))


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


@pytest.mark.parametrize("name", ["aiofastnet", "aiofastnet-uvloop", "aiofastnet-zuvloop"])
def test_a_worker_on_aiofastnets_transports(worker_of, name):
    for module in ("aiofastnet", TARGETS[name].module):
        pytest.importorskip(module, reason=f"{module} is not installed")
    worker = worker_of(TARGETS[name])
    assert worker.missing is None
    targets.check(worker.target, worker.facts)
    assert " on " in worker.facts["version"]
    assert worker.facts["loop"].startswith(f"{TARGETS[name].module}.")
    assert worker.facts["TLS"] in ("by calls of OpenSSL", "by the ssl module")


def test_without_aiofastnet_its_columns_say_so(worker_of, tmp_path, monkeypatch):
    (tmp_path / "aiofastnet.py").write_text("""raise ModuleNotFoundError("No module named 'aiofastnet'")""")
    monkeypatch.syspath_prepend(tmp_path)
    assert worker_of(TARGETS["aiofastnet"]).missing == "ModuleNotFoundError: No module named 'aiofastnet'"


def test_no_other_column_can_import_aiofastnet(worker_of, tmp_path, monkeypatch):
    (tmp_path / "aiofastnet.py").touch()
    # As a library would that prefers it, in a worker.
    (tmp_path / "uvloop.py").write_text("import aiofastnet")
    monkeypatch.syspath_prepend(tmp_path)
    assert worker_of(TARGETS["uvloop"]).missing.startswith("ModuleNotFoundError: import of aiofastnet halted")


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


def test_a_worker_may_take_as_long_as_what_it_waits_for():
    assert max(SECONDS_TO_START, SECONDS_TO_MAKE) < runner.SECONDS_BEFORE_A_WORKER_HANGS


def test_the_python_target_is_the_fallback_even_where_the_extension_is_built(worker_of):
    worker = worker_of(TARGETS["hotloop-python"])
    targets.check(worker.target, worker.facts)
    assert worker.facts["task"] == f"{asyncio.Task.__module__}.Task"


def test_nothing_of_hotloop_is_loaded_beside_another_loop():
    source = (
        "import sys; import hotloop_bench.worker\n"
        "print(*(name for name in sys.modules if name.startswith('hotloop') and not name.startswith('hotloop_bench')))"
    )
    environ = runner.environment(TARGETS["asyncio"])
    done = subprocess.run([sys.executable, "-c", source], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_environment_does_not_leak_into_the_workers(monkeypatch):
    monkeypatch.setenv("HOTLOOP_IMPL", "python")
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    assert runner.environment(TARGETS["hotloop-c"])["HOTLOOP_IMPL"] == "c"
    assert not {"HOTLOOP_IMPL", "PYTHONASYNCIODEBUG"} & runner.environment(TARGETS["uvloop"]).keys()


def test_no_variable_that_hotloop_reads_leaks_into_the_workers(monkeypatch):
    folders = [Path(hotloop.__file__).parent, Path(__file__).parents[2] / "ext"]
    sources = [path for folder in folders for path in folder.rglob("*.py*") if path.suffix in SOURCES]
    read = {name for path in sources for name in re.findall('"(HOTLOOP_[A-Z_]+)"', path.read_text())}
    assert {"HOTLOOP_IMPL", "HOTLOOP_TLS", "HOTLOOP_DUMP_TASKS_ON"} <= read
    for name in read:
        monkeypatch.setenv(name, "1")
    assert not read & runner.environment(TARGETS["uvloop"]).keys()
