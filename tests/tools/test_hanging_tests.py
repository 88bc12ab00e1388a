"""A test that hangs ends its run, which shows where it hung."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("options", [[], ["--numprocesses=1"]], ids=["one process", "a worker"])
def test_the_traceback_of_a_test_that_hangs(tmp_path, options):
    tmp_path.joinpath("test_hangs.py").write_text("import time\n\ndef test_that_hangs(impl):\n    time.sleep(300)\n")
    environ = os.environ | {"HOTLOOP_TEST_SECONDS": "1", "HOTLOOP_TEST_IMPLS": "asyncio", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "--maxfail=1", *options, "."]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        try:
            _, shown = run.communicate(timeout=100)
        finally:
            run.kill()
    assert b"Timeout (0:00:01)!" in shown
    assert b"in test_that_hangs" in shown
