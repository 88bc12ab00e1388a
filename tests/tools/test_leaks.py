"""leaks.py, the plugin: it finds leaks, and reports nothing else."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]

TESTS = """
import asyncio, contextvars, ctypes, os
import pytest

kept = []
runs = iter(range(100))

def test_nothing_leaks():
    assert asyncio.new_event_loop().close() is None

def test_what_is_made_once_is_no_leak():
    if len(kept) < 3:
        kept.append([])

def test_what_grows_now_and_then_is_no_leak():
    if next(runs) % 2:
        kept.append([])

def test_a_cycle_is_no_leak():
    cycle = []
    cycle.append(cycle)

def test_a_variable_is_no_leak():
    contextvars.ContextVar("variable").set(object())

@pytest.mark.parametrize("error", [ValueError()])
def test_the_traceback_of_a_parameter_is_no_leak(error):
    try:
        raise error
    except ValueError:
        pass

def test_a_property_of_the_report_is_no_leak(request):
    request.node.user_properties.append(("name", object()))

def test_an_object_is_kept():
    kept.append([])

def test_a_reference_is_lost():
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(bytes(100)))

def test_a_descriptor_is_left():
    kept.append(os.open(os.devnull, os.O_RDONLY))

def test_a_failure_is_a_failure():
    assert not kept

@pytest.mark.skip(reason="the test's")
def test_a_skip_is_a_skip():
    pass
"""


@pytest.mark.skipif(sys.getallocatedblocks() == 0, reason="PYTHONMALLOC: Python does not count its blocks of memory")
@pytest.mark.only("c", reason="the leaks are the test's own, whatever the loop is")
def test_leaks_are_found(impl, tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "support.leaks",
            "-p",
            "no:cacheprovider",
            "-rA",
            "--tb=short",
            "test_some.py",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "HOTLOOP_TEST_IMPLS": impl.name, "HOTLOOP_IMPL": impl.name},
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = dict(
        re.findall(r"^(?:PASSED|FAILED) test_some.py::test_(\w+)(?:\[\w+\])?(?: - (.*))?$", done.stdout, re.MULTILINE)
    )
    passed = [name for name, reason in outcomes.items() if not reason]
    assert passed == [
        "nothing_leaks",
        "what_is_made_once_is_no_leak",
        "what_grows_now_and_then_is_no_leak",
        "a_cycle_is_no_leak",
        "a_variable_is_no_leak",
        "the_traceback_of_a_parameter_is_no_leak",
        "a_property_of_the_report_is_no_leak",
    ], done.stdout
    leaking = [name for name, reason in outcomes.items() if reason.startswith("it leaks")]
    assert leaking == ["an_object_is_kept", "a_reference_is_lost", "a_descriptor_is_left"]
    assert outcomes["a_failure_is_a_failure"].startswith("assert not [")
    assert re.search(r"descriptors: \+1, \+1, \+1, \+1, \+1$", done.stdout, re.MULTILINE)
    assert "4 failed, 7 passed, 1 skipped" in done.stdout


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without the GIL Python does not start with PYTHONMALLOC=malloc",
)
def test_without_a_count_there_is_no_result():
    command = [sys.executable, "-m", "pytest", "-p", "support.leaks", "-p", "no:cacheprovider", __file__]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path]), "PYTHONMALLOC": "malloc"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "leaks: Python does not count blocks of memory that are not its own (PYTHONMALLOC)" in done.stderr
