""".ci/stages.sh and the Makefile: a check fails where a step of it does, and checks what it builds."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES, MAKEFILE = ROOT / ".ci" / "stages.sh", ROOT / "Makefile"

pytestmark = [
    pytest.mark.skipif(not STAGES.is_file(), reason="only the repository has the checks"),
    pytest.mark.skipif(not shutil.which("bash"), reason="the stages are functions of bash"),
]


@pytest.fixture
def stages(tmp_path):
    """stages(commands) runs them after the functions, in an empty folder."""
    programs = tmp_path / "programs"
    programs.mkdir()

    def run(commands, **scripts):
        for name, text in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        return subprocess.run(
            ["bash", "-c", f"set -euo pipefail; . {STAGES}; {commands}"],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize("mode", ["yes", "no"])
def test_a_wheel_that_could_not_be_built_ends_the_stage(stages, mode):
    done = stages(f"file=$(wheel {mode} wheels broken-python); echo went on with $file", **{"broken-python": "exit 3"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_variant_that_was_built_before_is_built_again(stages, tmp_path):
    installed = tmp_path / "build" / "debug-venv" / ".installed"
    installed.parent.mkdir(parents=True)
    installed.touch()
    done = stages("variant debug", make='test -e build/debug-venv/.installed || echo "building with $CFLAGS"')
    assert done.stdout == "building with -Werror\n"


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
@pytest.mark.parametrize(("code", "outcome"), [(0, 0), (1, 2), (3, 2), (4, 0)])
def test_a_python_without_compiled_asyncio_is_no_failure_of_debug_test(tmp_path, code, outcome):
    """Its suites end with code 4; make's own is 2 after any failure."""
    python = tmp_path / "build" / "debug-venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ncase $* in *c+compiled) exit {code} ;; esac\n")
    python.chmod(0o755)
    command = ["make", "--silent", f"--file={MAKEFILE}", "--assume-old=build/debug-venv/.installed", "debug-test"]
    # Without what a `make` that runs these tests passes on.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == outcome, done.stderr
