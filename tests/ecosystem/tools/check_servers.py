"""Web servers, started as the page says, with real requests, until a signal ends them."""

import shutil
import signal
import sys
from pathlib import Path

import pytest
from document import section
from serving import check_facts, free_port, started

PROGRAMS = Path(__file__).parent.parent / "programs"
# On these versions aiohttp makes its tasks of asyncio.Task itself, whatever the loop.
AIOHTTPS_TASKS = "_asyncio" if (3, 12) <= sys.version_info < (3, 14) else "hotloop"
SHUT_DOWN = "the application has been shut down"


@pytest.fixture
def folder(tmp_path):
    """A folder with the programs that the page names."""
    shutil.copy(PROGRAMS / "facts.py", tmp_path)
    shutil.copy(PROGRAMS / "asgi.py", tmp_path / "app.py")
    return tmp_path


def serve(tool, folder, port, command, workers, program=None, task="hotloop"):
    """Start a server, use it, end it; it must have had time to shut the application down in each worker."""
    page = section(tool)
    page.write(folder, port)
    if program:
        shutil.copy(PROGRAMS / program, folder / "program.py")
    command = page.command(command, port) if isinstance(command, int) else ["python", command]
    with started(command, folder, port, task) as server:
        server.check_serving()
        server.check_workers(workers)
        code = server.end(signal.SIGTERM if workers > 1 else signal.SIGINT)
    assert "Traceback" not in server.output, server.output
    return code, server.output


@pytest.mark.parametrize(("command", "workers"), [(0, 1), (1, 2), (2, 1), (3, 2), ("serve.py", 1)])
def test_uvicorn(folder, port, command, workers):
    ended, output = serve("uvicorn", folder, port, command, workers)
    assert output.count(SHUT_DOWN) == workers, output
    assert ended == 0, output


@pytest.mark.parametrize("command", [0, 1], ids=["uvicorn's worker", "its own worker"])
def test_gunicorn(folder, port, command):
    ended, output = serve("gunicorn", folder, port, command, workers=2)
    assert output.count(SHUT_DOWN) == 2, output
    assert ended == 0, output


def test_hypercorn(folder, port):
    ended, output = serve("hypercorn", folder, port, "serve.py", workers=1)
    assert output.count(SHUT_DOWN) == 1, output
    assert ended == 0, output


def test_granian(folder, port):
    ended, output = serve("granian", folder, port, "serve.py", workers=2)
    assert output.count(SHUT_DOWN) == 2, output
    assert ended == 0, output


def test_aiohttp(folder, port):
    ended, output = serve("aiohttp", folder, port, "serve.py", 1, "aiohttp_program.py", AIOHTTPS_TASKS)
    assert output.count(SHUT_DOWN) == 1, output
    assert ended == 0, output


def test_aiohttp_processes_that_share_a_port(folder, port):
    section("aiohttp").write(folder, port)
    shutil.copy(PROGRAMS / "aiohttp_program.py", folder / "program.py")
    command = [sys.executable, "shared.py"]
    processes = [started(command, folder, port, AIOHTTPS_TASKS) for _ in range(2)]
    with processes[0] as one, processes[1] as other:
        one.check_workers(2)
        one.check_serving()
        assert [server.end() for server in (one, other)] == [0, 0]
    assert one.output.count(SHUT_DOWN) == other.output.count(SHUT_DOWN) == 1


@pytest.mark.parametrize("script", ["serve.py", "ioloop.py"])
def test_tornado(folder, port, script):
    """Only Ctrl-C ends it: the page's program has no shutdown."""
    section("Tornado").write(folder, port)
    shutil.copy(PROGRAMS / "tornado_program.py", folder / "program.py")
    with started([sys.executable, script], folder, port) as server:
        server.check_serving()
        child = server.request("/child").decode()
        assert child == "through a child"
        assert server.end() == -signal.SIGINT
    assert "KeyboardInterrupt" in server.output
    assert "Error in sys.excepthook" not in server.output


def test_a_server_on_another_loop_is_found_out(folder):
    """The tests above would fail on another loop."""
    port = free_port()
    with started(["uvicorn", "--port", str(port), "app:app"], folder, port) as server:
        facts = server.wait_until(server.facts, "an answer")
        with pytest.raises(AssertionError):
            check_facts(facts)
        server.end()
