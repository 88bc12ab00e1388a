"""benchmarks/large_bodies.py: bodies are served with each setting of glibc's malloc()."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_bodies.py"

pytestmark = [
    pytest.mark.only("c", "python", reason="asyncio's loop is one of those that the script runs"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm, and the settings are glibc's"),
]


def test_every_loop_serves_with_every_setting(impl, monkeypatch):
    monkeypatch.setenv("HOTLOOP_IMPL", impl.name)
    command = [sys.executable, SCRIPT, "--loops", "asyncio,hotloop", "--bodies", "3", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == ""
    rows = [line.rsplit(maxsplit=4) for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        [setting, loop] for setting in ("its own", "fixed", "raised") for loop in ("asyncio", "hotloop")
    ]
    for row in rows:
        time, faults, resident = map(float, row[2:])
        assert time >= 0 and faults >= 0 and resident > 1
