"""asyncio, anyio, pytest plugins: programs that end by themselves."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from document import section
from serving import check_facts, run

PROGRAMS = Path(__file__).parent.parent / "programs"
SETTINGS = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
SUITE = """
import asyncio

import hotloop
import pytest
from facts import facts


@pytest.fixture
async def queue():
    queue = asyncio.Queue()
    task = asyncio.create_task(queue.put("from the fixture"))
    yield queue
    await task


@MARK
async def test_loop(queue):
    assert await queue.get() == "from the fixture"
    assert facts()["hotloop"], facts()
    assert facts()["task"] == "hotloop"


@MARK
@pytest.mark.parametrize("number", range(3))
async def test_many(number):
    assert await asyncio.gather(*(asyncio.sleep(0, value) for value in range(number))) == list(range(number))
    assert isinstance(asyncio.get_running_loop(), hotloop.EventLoop)
"""


def copy(program, folder, name="program.py"):
    shutil.copy(PROGRAMS / "facts.py", folder)
    shutil.copy(PROGRAMS / program, folder / name)


def check_printed(output):
    check_facts(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize("script", ["runner.py", "short.py"])
def test_asyncio(tmp_path, script):
    copy("asyncio_program.py", tmp_path)
    section("asyncio").write(tmp_path)
    check_printed(run([sys.executable, script], tmp_path))


def test_a_program_that_knows_nothing_of_it(tmp_path):
    copy("asyncio_program.py", tmp_path)
    check_printed(run(section("asyncio").command(0), tmp_path))


def test_a_program_on_another_loop_is_found_out(tmp_path):
    """The tests above would fail on another loop."""
    copy("asyncio_program.py", tmp_path)
    with pytest.raises(AssertionError):
        check_printed(run([sys.executable, "program.py"], tmp_path))


def test_anyio(tmp_path):
    copy("anyio_program.py", tmp_path)
    section("anyio").write(tmp_path)
    check_printed(run([sys.executable, "main.py"], tmp_path))


def test_aiofastnet(tmp_path):
    """The program asserts that its transports are aiofastnet's, and that a library would recognise its loop."""
    copy("aiofastnet_program.py", tmp_path)
    section("aiofastnet").write(tmp_path)
    assert (tmp_path / "native.py").exists()
    check_printed(run([sys.executable, "fastnet.py"], tmp_path))


def passed(output, count):
    assert f"{count} passed in" in output.splitlines()[-1], output


def write_suite(tool, mark, folder, settings):
    shutil.copy(PROGRAMS / "facts.py", folder)
    section(tool).write(folder)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}", encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE.replace("@MARK", mark), encoding="utf-8")


def test_the_plugin_of_anyio(tmp_path):
    write_suite("anyio", "@pytest.mark.anyio", tmp_path, "addopts = -p no:asyncio\n")
    passed(run([sys.executable, "-m", "pytest", "-q", "-p", "anyio"], tmp_path), 4)


def test_pytest_asyncio(tmp_path):
    write_suite("pytest-asyncio", "@pytest.mark.asyncio", tmp_path, SETTINGS)
    passed(run([sys.executable, "-m", "pytest", "-q"], tmp_path), 4)


def test_pytest_asyncio_without_the_hook(tmp_path):
    write_suite("pytest-asyncio", "@pytest.mark.asyncio", tmp_path, SETTINGS)
    (tmp_path / "conftest.py").unlink()
    passed(run([*section("pytest-asyncio").command(0), "-q"], tmp_path), 4)


def test_a_suite_on_another_loop_is_found_out(tmp_path):
    write_suite("pytest-asyncio", "@pytest.mark.asyncio", tmp_path, SETTINGS)
    (tmp_path / "conftest.py").unlink()
    with pytest.raises(AssertionError, match="test_loop"):
        run([sys.executable, "-m", "pytest", "-q"], tmp_path)


def test_nest_asyncio2(tmp_path):
    copy("nested_program.py", tmp_path)
    section("nest_asyncio2").write(tmp_path)
    check_printed(run([sys.executable, "nested.py"], tmp_path))
