"""benchmarks/large_bodies.py: bodies are served with each setting of glibc's malloc()."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import large_bodies

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_bodies.py"

pytestmark = [
    pytest.mark.only("c", "python", reason="asyncio's loop is one of those that the script runs"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm, and the settings are glibc's"),
]


def script(*arguments, **environ):
    command = [sys.executable, SCRIPT, "--bodies", "3", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ | environ)


def test_every_loop_serves_with_every_setting(impl):
    done = script("--loops", f"asyncio,hotloop-{impl.name}", "--rounds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.rsplit(maxsplit=4) for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        [setting, loop] for setting in ("its own", "fixed", "raised") for loop in ("asyncio", f"hotloop-{impl.name}")
    ]
    for row in rows:
        time, faults, resident = map(float, row[2:])
        assert time >= 0 and faults >= 0 and resident > 1


def test_a_loop_of_another_implementation_is_not_measured(impl, tmp_path):
    """What makes the loops here is asyncio's, under the name of hotloop's."""
    lines = ["from asyncio import new_event_loop", "from selectors import DefaultSelector", "__version__ = '0'"]
    (tmp_path / "hotloop.py").write_text("\n".join(lines))
    done = script("--loops", f"hotloop-{impl.name}", PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert f"large_bodies.py: hotloop-{impl.name} was asked for, but its loop is asyncio." in done.stderr
    assert done.stdout == ""


def test_a_round_goes_once_around_all(impl, monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(large_bodies, "measure", lambda loop, bodies, setting: measured.append(loop) or [1.0, 2.0, 3.0])
    monkeypatch.setattr(sys, "argv", ["large_bodies.py", "--loops", f"asyncio,hotloop-{impl.name}", "--rounds", "2"])
    large_bodies.main()
    capsys.readouterr()
    around = ["asyncio", f"hotloop-{impl.name}"] * 3
    assert measured == [*around, *around[1:], around[0]]
