"""benchmarks/soak.py: it passes if nothing leaks, and fails for each object that does."""

import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

import soak

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
ROUNDS = 6

NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads a process's resources from Linux's /proc"),
    pytest.mark.skipif(
        NO_GIL and sys.version_info < (3, 14),
        reason="CPython 3.13 without the GIL keeps all classes and functions that a program with threads makes",
    ),
]

counts_blocks = pytest.mark.skipif(
    sys.getallocatedblocks() == 0, reason="PYTHONMALLOC: Python does not count its blocks of memory"
)


def command(*arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "soak.py"), *arguments], capture_output=True, text=True, check=False
    )


@counts_blocks
@pytest.mark.only("c", reason="tests the command, on the implementation that most programs run")
def test_all_scenarios_end_as_they_began(impl):
    done = command("--loop", "hotloop-c", "--rounds", str(ROUNDS), "--times", "1")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == f"nothing has grown in {ROUNDS} rounds"


def leaking_descriptors(kept):
    def scenario(ground):
        kept.append(open(os.devnull))  # noqa: SIM115  # that is the leak

    return scenario


def leaking_objects(kept):
    return lambda ground: kept.extend([] for _ in range(100))


def leaking_blocks(kept):
    return lambda ground: kept.extend(bytes(40) for _ in range(300))


def leaking_memory(kept):
    # Far more than the allocator may return of the memory of earlier tests in the meantime.
    return lambda ground: kept.append(bytearray(os.urandom(1)) * (16 << 20))


def leaking_threads(kept):
    def scenario(ground):
        over = threading.Event()
        threading.Thread(target=over.wait).start()
        kept.append(over)

    return scenario


def leaking_children(kept):
    return lambda ground: kept.append(subprocess.Popen(["sleep", "3600"]))


def leaking_loops(kept):
    """Loops that are kept and never closed."""
    return lambda ground: kept.append(ground.new_event_loop())


def give_back(kept):
    for thing in kept:
        if isinstance(thing, threading.Event):
            thing.set()
        elif isinstance(thing, subprocess.Popen):
            thing.kill()
            thing.wait()
        elif hasattr(thing, "close"):
            thing.close()
    kept.clear()


@counts_blocks
@pytest.mark.parametrize(
    "make, leaked",
    [
        (leaking_descriptors, "descriptors"),
        (leaking_objects, "objects"),
        (leaking_blocks, "blocks"),
        (leaking_memory, "resident"),
        (leaking_threads, "threads"),
        (leaking_children, "children"),
        (leaking_loops, "descriptors"),
    ],
)
@pytest.mark.only("c", reason="the leaks are the test's own, whatever the loop is")
def test_a_leak_is_found(impl, tmp_path, make, leaked):
    ground = soak.Ground(impl.new_event_loop, tmp_path, 1)
    kept = []

    def check(scenarios):
        usages = soak.soak(scenarios, ground, lambda done: done < ROUNDS, warm_up=2)
        return [excess.partition(" ")[0] for excess in soak.excesses(soak.growth(usages))]

    try:
        assert check([]) == []
        assert leaked in check([make(kept)])
    finally:
        give_back(kept)


def test_growth_is_from_the_least_of_the_first_third_to_the_least_of_the_last():
    usages = [soak.Usage(5, 1, 0, objects, 100, 1000) for objects in (7, 9, 50, 50, 30, 12)]
    assert soak.growth(usages) == soak.Usage(0, 0, 0, 12 - 7, 0, 0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--minutes", "0"], "argument --minutes: 0 is no time to run"),
        (["--rounds", "5"], "--rounds: fewer than 6 tell nothing"),
        (["--loop", "none"], "argument --loop: no loop is called 'none'; there are "),
        (["--scenarios", "tcp,no"], "argument --scenarios: no scenario is called 'no'; there are "),
    ],
)
def test_wrong_options_get_one_clear_line(arguments, message):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"soak.py: {message}")


@counts_blocks
@pytest.mark.only("c", reason="tests the command alone")
def test_a_scenario_that_could_not_run_has_not_passed(impl, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "soak.py"), "--rounds", str(ROUNDS), "--scenarios", "lifecycles,tls"],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "NOT RUN: tls: the certificate is made by the openssl command, which is not installed" in done.stdout


@pytest.mark.skipif(NO_GIL, reason="without the GIL Python does not start with PYTHONMALLOC=malloc")
@pytest.mark.only("c", reason="tests the command alone")
def test_without_a_count_there_is_no_result(impl):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "soak.py")],
        env=os.environ | {"PYTHONMALLOC": "malloc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("soak.py: hotloop-c: not run: Python does not count blocks of memory")
