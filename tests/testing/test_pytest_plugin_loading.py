"""How pytest loads the plugin: by its entry point, by its name, or not at all; and that this causes no warning.

Each test runs pytest in a process of its own, beside the metadata of an installed hotloop: an editable install lists
none of the package's files, so pytest would not examine the package as it does for an installed wheel.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hotloop

PROJECT = Path(__file__).parents[2]
SOURCES = Path(hotloop.__file__).parent

TEST_OF_OURS = """
import asyncio

async def test_it(hotloop_clock):
    await asyncio.sleep(3600)
    assert hotloop_clock.time() == 3600
"""

TEST_OF_ANOTHER = """
def test_it(pytestconfig):
    assert 1 + 1 == 2
    assert not pytestconfig.pluginmanager.has_plugin("hotloop.pytest_plugin")
"""


@pytest.fixture
def installed(tmp_path):
    """A folder for sys.path with the metadata that pip would write for a wheel of this project."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / "site" / "hotloop-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: hotloop\nVersion: 0.1.0\n")
    lines = [f"{name} = {value}\n" for name, value in project["entry-points"]["pytest11"].items()]
    (folder / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    files = [path.relative_to(SOURCES.parent).as_posix() for path in SOURCES.rglob("*.py")]
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return folder.parent


@pytest.fixture
def run(tmp_path, installed):
    """Run `python ... -m pytest ...` on a test file with this source; return its output."""

    def run(before, source, *options, check=True, **environ):
        (tmp_path / "test_it.py").write_text(source)
        path = os.pathsep.join([str(installed), str(SOURCES.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, *before, "-m", "pytest", "-p", "no:asyncio", "-p", "no:anyio", *options, "test_it.py"],
            cwd=tmp_path,
            env=inherited | {"PYTHONPATH": path} | environ,
            capture_output=True,
            text=True,
            timeout=100,
        )
        output = done.stdout + done.stderr
        assert not check or (done.returncode == 0 and "warning" not in output), output
        return output

    return run


INTERPRETERS = {"python": [], "python -W error": ["-W", "error"], "python -m hotloop": ["-m", "hotloop"]}


@pytest.mark.parametrize("before", INTERPRETERS.values(), ids=INTERPRETERS)
def test_an_installed_plugin_works_without_a_warning(run, before):
    run(before, TEST_OF_OURS, "-W", "error")


@pytest.mark.parametrize("name", ["hotloop", "hotloop.pytest_plugin"])
def test_it_can_be_switched_off(run, name):
    run(["-m", "hotloop"], TEST_OF_ANOTHER, "-W", "error", "-p", f"no:{name}")
    assert "fixture 'hotloop_clock' not found" in run([], TEST_OF_OURS, "-p", f"no:{name}", check=False)


@pytest.mark.parametrize("name", ["hotloop", "hotloop.pytest_plugin"])
@pytest.mark.parametrize("autoload", [{}, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}], ids=["", "no autoload"])
def test_it_can_be_asked_for_and_is_there_once(run, autoload, name):
    run(["-m", "hotloop"], TEST_OF_OURS, "-W", "error", "-p", name, **autoload)


def test_it_can_be_asked_for_by_the_environment_and_a_conftest(run, tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["hotloop.pytest_plugin"]\n')
    run(["-m", "hotloop"], TEST_OF_OURS, "-W", "error", PYTEST_PLUGINS="hotloop.pytest_plugin")


def test_warnings_of_other_plugins_stay(run, tmp_path):
    """pytest does not warn of hotloop's package; it does warn of another plugin that is imported already."""
    (tmp_path / "imported_already.py").write_text("")
    (tmp_path / "conftest.py").write_text("import imported_already\npytest_plugins = ['imported_already']\n")
    output = run(["-m", "hotloop"], TEST_OF_OURS, check=False)
    assert "Module already imported so cannot be rewritten" in output and "imported_already" in output
    assert not re.search("rewritten[:;] hotloop", output)
