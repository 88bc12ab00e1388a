"""benchmarks/several_loops.py: what several loops serve together, in threads and in processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop_bench import runner
from hotloop_bench.rows import wrk
from hotloop_bench.rows.registry import missing
from hotloop_bench.targets import TARGETS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "several_loops.py"
REASON = wrk.unavailable() or missing("aiohttp")


def several_loops(*arguments, path=None):
    environ = runner.environment(TARGETS["asyncio"]) | ({} if path is None else {"PATH": path})
    command = [sys.executable, os.fspath(SCRIPT), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("loop", ["asyncio", "hotloop-c"])
def test_threads_and_processes_are_measured(loop):
    done = several_loops("--loop", loop, "--seconds", "1", "--rounds", "1", "--json")
    if "hotloop-c: not measured" in done.stderr:
        pytest.skip("the extension is not built")
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert [(report["kind"], report["loops"]) for report in reports] == [
        ("threads", 1),
        ("threads", 2),
        ("processes", 2),
    ]
    for report in reports:
        assert report["requests_per_second"] > 0
        assert report["cpu_per_request"] > 0
        assert report["p99"] > 0


def test_what_is_not_installed_is_said_in_one_line(tmp_path):
    done = several_loops("--loop", "asyncio", path=os.fspath(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "several_loops.py: asyncio: not measured: it needs wrk, which is not installed\n"


@pytest.mark.skipif(missing("aiohttp") is not None, reason="it needs aiohttp")
def test_a_load_that_failed_is_said_in_one_line(tmp_path):
    failing = tmp_path / "wrk"
    failing.write_text("#!/bin/sh\necho Socket errors: connect 0, read 3, write 0, timeout 0\n")
    failing.chmod(0o755)
    done = several_loops("--loop", "asyncio", path=os.fspath(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "several_loops.py: asyncio: not measured: wrk: Socket errors: connect 0, read 3, write 0, timeout 0\n"
    )
