""".ci/stages.sh: a stage fails where a step of it does, and checks what it builds."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STAGES = Path(__file__).parents[2] / ".ci" / "stages.sh"

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
