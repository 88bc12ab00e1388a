"""`python -m hotloop` and programs that choose an event loop by themselves."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.only("c", "python", reason="the command line is hotloop's")

SAID = "hotloop: the program made no loop of hotloop's, but loaded uvloop: name hotloop:new_event_loop where it takes"


@pytest.fixture
def python(impl, tmp_path):
    """Runs `python -m hotloop` in a folder that has the given files."""

    def run(*words, files, **variables):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(text)
        environment = {name: value for name, value in os.environ.items() if name != "UVICORN_LOOP"}
        environment |= {"HOTLOOP_IMPL": impl.name} | variables
        line = [sys.executable, "-m", "hotloop", *words]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)
        return done.returncode, done.stdout, done.stderr

    return run


def installed(version):
    """A package named uvicorn that shows what it is told."""
    return {
        "uvicorn/__main__.py": "import os; print(os.environ.get('UVICORN_LOOP'))",
        "bin/uvicorn": "import os; print(os.environ.get('UVICORN_LOOP'))",
        f"uvicorn-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: uvicorn\nVersion: {version}\n",
    }


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.36.0", True), ("0.54", True), ("1.0.0rc1", True), ("0.35.0", False), ("local", False)],
)
def test_uvicorn_is_told_if_it_takes_any_loop(python, version, told):
    code, out, err = python("-m", "uvicorn", files=installed(version))
    assert (code, out, err) == (0, "hotloop:new_event_loop\n" if told else "None\n", "")


def test_the_script_of_uvicorn_too(python, tmp_path):
    done = python("bin/uvicorn", files=installed("0.54"), PYTHONPATH=with_path(tmp_path))
    assert done == (0, "hotloop:new_event_loop\n", "")


def with_path(folder):
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_what_the_user_has_set_stays(python):
    assert python("-m", "uvicorn", files=installed("0.54"), UVICORN_LOOP="asyncio") == (0, "asyncio\n", "")


def test_another_program_is_not_told(python):
    source = "import os; print(os.environ.get('UVICORN_LOOP'))"
    assert python("program.py", files={"program.py": source}) == (0, "None\n", "")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import uvloop", 0),
        ("import uvloop, sys; sys.exit(3)", 3),
        ("import uvloop; 1 / 0", 1),
    ],
)
def test_another_loop_is_named_at_the_end(python, source, code):
    ended, out, err = python("program.py", files={"program.py": source, "uvloop.py": ""})
    lines = err.splitlines()
    assert (ended, out) == (code, "")
    assert [line for line in lines if line.startswith("hotloop:")] == [line for line in lines if SAID in line] != []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio, uvloop; asyncio.run(asyncio.sleep(0))",
        "import uvloop, hotloop; hotloop.new_event_loop().close()",
        "import asyncio",
        "import os, sys, uvloop, hotloop\nif os.fork() == 0: sys.exit()\nos.wait(); hotloop.new_event_loop().close()",
        "import sys, uvloop; sys.stderr = None",
    ],
)
def test_nothing_is_said_if_hotloop_ran(python, source):
    files = {"program.py": source, "uvloop.py": ""}
    assert python("program.py", files=files) == (0, "", "")


FAILING = "sys.stderr = type('Failing', (io.StringIO,), {'write': lambda *_: 1 / 0})()"


@pytest.mark.parametrize("statement", ["sys.stderr.close()", FAILING])
def test_a_program_without_a_standard_error_ends_as_it_would(python, statement):
    source = f"import io, sys, uvloop; {statement}; sys.exit(3)"
    assert python("program.py", files={"program.py": source, "uvloop.py": ""}) == (3, "", "")
