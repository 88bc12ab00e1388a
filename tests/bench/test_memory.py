"""benchmarks/memory.py: what one of each thing costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop_bench import load, runner
from hotloop_bench.targets import TARGETS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


def script(*arguments):
    command = [sys.executable, str(SCRIPT), "--rounds", "1", *arguments]
    environ = runner.environment(TARGETS["asyncio"])
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_each_thing_without_a_connection_is_measured():
    names = "timer,future,task-that-awaits-a-future,task-that-sleeps"
    done = script("--loops", "asyncio,hotloop-python", "--things", f"loop,{names}", "--count", "20000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)["bytes"]
    assert list(figures) == ["loop", *names.split(",")]
    for loop in ("asyncio", "hotloop-python"):
        # A task and its coroutine are more than a future, and a timer more than a tuple of four.
        timer, future, awaiting, sleeping = (figures[name][loop] for name in names.split(","))
        assert timer > 72 and 72 < future < awaiting < sleeping < 10_000


def test_what_asyncio_makes_of_python_objects_is_measured():
    names = ("queue", "lock", "semaphore", "event", "condition", "task-in-queue-get", "task-in-semaphore-acquire")
    done = script("--loops", "asyncio", "--things", ",".join(names), "--count", "2000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = {name: found["asyncio"] for name, found in json.loads(done.stdout)["bytes"].items()}
    assert tuple(figures) == names
    # A condition has a lock, and a task that waits in get() its queue.
    assert 48 < figures["lock"] < figures["condition"] < 10_000
    assert 48 < figures["queue"] < figures["task-in-queue-get"] < 20_000
    assert 48 < figures["semaphore"] < figures["task-in-semaphore-acquire"] < 20_000


@pytest.mark.skipif(load.unavailable() is not None, reason=str(load.unavailable()))
def test_connections_are_measured():
    done = script("--loops", "asyncio", "--things", "connection", "--count", "500")
    assert (done.returncode, done.stderr) == (0, "")
    head, line = done.stdout.splitlines()[-2:]
    assert head.split() == ["bytes", "for", "one", "asyncio"]
    name, figure = line.split()
    assert name == "connection" and 0 < int(figure.replace(",", "")) < 100_000


def test_what_cannot_be_measured_is_named():
    done = script("--loops", "asyncio", "--things", "connection", "--count", str(sys.maxsize))
    assert done.returncode == 1
    assert "memory.py: asyncio: connection: not measured: " in done.stderr
    assert done.stdout.splitlines()[-1].split() == ["connection", "-"]


def test_a_thing_that_there_is_not():
    done = script("--things", "timer,nothing")
    assert done.returncode == 2
    assert "nothing is called 'nothing'; there are loop, timer, future, " in done.stderr
