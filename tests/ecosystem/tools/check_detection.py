"""The changes of docs/auto-detection.md: applied to copies of the tools, which then find hotloop by themselves."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from check_jupyter import FACTS, execute, kernel_of
from check_servers import AIOHTTPS_TASKS, PROGRAMS
from document import PAGE, sections
from serving import started

SECTIONS = sections(PAGE.with_name("auto-detection.md").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    os.environ.get("HOTLOOP_IMPL") == "python", reason="the changes take hotloop only if it is compiled"
)


def change(heading: str, folder: Path) -> None:
    """Copy the packages that the section changes into `folder`, where they are found first, and change the copies."""
    section = SECTIONS[heading]
    section.write(folder)
    for name, text in section.files.items():
        if name.endswith(".diff"):
            (package,) = set(re.findall(r"^--- a/(\w+)/", text, re.MULTILINE))
            found = importlib.util.find_spec(package)
            assert found and found.origin
            shutil.copytree(Path(found.origin).parent, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
            command = ["patch", "--strip=1", "--fuzz=0", f"--input={name}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "offset" not in done.stdout, done.stdout


COMMANDS = [
    ("uvicorn", 0, 1),
    ("granian", 0, 1),
    ("granian", 1, 2),
    ("gunicorn", 0, 2),
    ("gunicorn", 1, 1),
    ("hypercorn", 0, 2),
    ("aiohttp", 0, 1),
    ("aiohttp", 1, 2),
]


@pytest.mark.parametrize(("tool", "command", "workers"), COMMANDS)
def test_a_changed_server_finds_hotloop(tool, command, workers, tmp_path, port):
    change(tool, tmp_path)
    shutil.copy(PROGRAMS / "facts.py", tmp_path)
    shutil.copy(PROGRAMS / "asgi.py", tmp_path / "app.py")
    shutil.copy(PROGRAMS / "aiohttp_program.py", tmp_path / "program.py")
    task = AIOHTTPS_TASKS if tool == "aiohttp" else "hotloop"
    with started(SECTIONS[tool].command(command, port), tmp_path, port, task) as server:
        server.check_serving()
        server.check_workers(workers)
        server.end(signal.SIGTERM)
    assert "Traceback" not in server.output, server.output


def test_every_command_of_the_page_is_tried():
    assert [(tool, command) for tool, command, _ in COMMANDS] == [
        (heading, number) for heading, section in SECTIONS.items() for number in range(len(section.commands))
    ]


def test_a_changed_kernel_finds_hotloop(tmp_path, monkeypatch):
    folder = tmp_path / "kernels" / "hotloop"
    folder.mkdir(parents=True)
    change("Jupyter", folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))
    with kernel_of(tmp_path, monkeypatch) as (_, client):
        printed, reply = execute(client, FACTS)
        assert reply["status"] == "ok", reply
        assert json.loads(printed) == [True, "c"]
