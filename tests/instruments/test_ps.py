"""`python -m hotloop ps` and `pstree`: all tasks of a running program, with their await chains, and as a tree."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from hotloop import allow_inspection
from hotloop.cli import remote, tasks
from hotloop.cli.main import main as command
from hotloop.instruments import snapshot

pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets"),
    pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress"),
]
by_the_interpreter = pytest.mark.skipif(
    not hasattr(sys, "remote_exec") or sys.platform != "linux",
    reason="sys.remote_exec() came with Python 3.14; on macOS only the superuser may use it",
)

PROGRAM = """if True:
    import sys, time
    import hotloop

    async def leaf():
        await asyncio.sleep(3600)

    async def group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leaf(), name="leaf-2")
            tasks.create_task(leaf(), name="leaf-10")

    async def idle():
        task = asyncio.create_task(group(), name="parent")
        asyncio.get_running_loop().call_later(0.1, begin)
        await task

    async def busy():
        task = asyncio.create_task(group(), name="parent")
        await asyncio.sleep(0.1)
        begin()
        block()

    def block():
        while True:
            time.sleep(0.001)

    def begin():
        print("begun", flush=True)

"""
TREE = [
    "task 'Task-1', idle(), waits",
    "└── task 'parent', group(), waits",
    "    ├── task 'leaf-2', leaf(), waits",
    "    └── task 'leaf-10', leaf(), waits",
]


@pytest.fixture
def started(impl):
    """Starts the program with further lines, and waits until it prints a line."""
    processes = []

    def start(lines):
        process = impl.popen(PROGRAM + lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield start
    for process in processes:
        process.kill()
        assert process.communicate() == ("", "")


@pytest.fixture
def answered(capsys):
    """The lines that a command prints."""

    def run(*words):
        code = command([*map(str, words)])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out.splitlines()

    return run


def without_places(lines):
    return [line.partition(" at ")[0] for line in lines]


def test_tree_through_a_socket(started, answered, socket_path):
    process = started(f"    hotloop.run(idle(), inspect={os.fspath(socket_path)!r})")
    head, *tree = answered("pstree", socket_path)
    assert head.startswith(f"process {process.pid}, Python ")
    assert head.endswith("the event loop in thread 'MainThread': 4 tasks")
    assert without_places(tree) == TREE
    assert tree[0].endswith(" in idle()")


def test_list_through_a_socket(started, answered, socket_path):
    started(f"    hotloop.run(idle(), inspect={os.fspath(socket_path)!r})")
    lines = answered("ps", socket_path)
    assert [line for line in lines if line.startswith("task")] == [
        "task 'Task-1', idle(), waits",
        "task 'leaf-2', leaf(), waits; awaited by 'parent'",
        "task 'leaf-10', leaf(), waits; awaited by 'parent'",
        "task 'parent', group(), waits; awaited by 'Task-1'",
    ]
    first = lines[lines.index("task 'leaf-2', leaf(), waits; awaited by 'parent'") + 1]
    assert first.startswith('  File "<string>", line ') and first.endswith("in leaf")


def test_the_process_has_its_own_socket(started, answered, monkeypatch, tmp_path):
    """With the number of a process, its default socket answers, on every Python."""
    monkeypatch.setenv("TMPDIR", os.fspath(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    process = started("    hotloop.run(idle(), inspect=True)")
    assert without_places(answered("pstree", process.pid)[1:]) == TREE


@pytest.mark.parametrize("how", ["ps", "pstree"])
def test_the_running_task_shows_its_stack(loop, socket_path, answered, how):
    lines = []
    finished = threading.Event()

    def ask():
        try:
            lines.extend(answered(how, socket_path))
        finally:
            finished.set()

    def block():
        finished.wait(60)

    async def blocking():
        thread = threading.Thread(target=ask)
        thread.start()
        block()
        thread.join()

    with allow_inspection(loop, socket_path):
        loop.run_until_complete(blocking())
    [at] = [number for number, line in enumerate(lines) if "blocking(), runs" in line]
    assert "block" in (lines[at] if how == "pstree" else "".join(lines[at + 1 : at + 3]))


@by_the_interpreter
def test_an_idle_program_is_asked_through_its_interpreter(started, answered):
    process = started("    hotloop.run(idle())")
    for _ in range(2):
        head, *tree = answered("pstree", process.pid)
        assert head.startswith(f"process {process.pid}, Python ")
        assert without_places(tree) == TREE


@by_the_interpreter
def test_a_blocked_program_is_asked_through_its_interpreter(started, answered):
    process = started("    hotloop.run(busy())")
    lines = answered("ps", process.pid)
    at = lines.index("task 'Task-1', busy(), runs")
    assert [line.rpartition(" in ")[2] for line in lines[at + 1 : at + 4]] == ["busy", "block", ""]


@by_the_interpreter
def test_every_loop_of_the_process(started, answered):
    process = started("""
    import threading
    other = threading.Thread(target=lambda: hotloop.run(group()), name="other", daemon=True)
    other.start()
    hotloop.run(idle())
    """)
    heads = [line for line in answered("pstree", process.pid) if line.startswith("process ")]
    assert sorted(head.partition("in thread ")[2] for head in heads) == ["'MainThread': 4 tasks", "'other': 3 tasks"]


@by_the_interpreter
@pytest.mark.parametrize("imports", ["asyncio", "asyncio, hotloop.loop"])
def test_a_program_without_a_loop_of_ours(answered, imports):
    """It is not told that it was asked, by a ResourceWarning for instance."""
    line = f"import {imports}; print(flush=True); asyncio.run(asyncio.sleep(60))"
    command = [sys.executable, "-W", "always", "-c", line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            assert answered("ps", process.pid) == ["the process has no event loop of hotloop's"]
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_without_any_way_in(monkeypatch, capsys):
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    assert command(["ps", str(os.getppid())]) == 1
    assert capsys.readouterr().err == (
        f"hotloop: process {os.getppid()} cannot be asked: this Python has no sys.remote_exec(), which came with 3.14; "
        "and it has opened no socket, as HOTLOOP_INSPECT=1 has it do\n"
    )


def test_no_such_process_or_socket(capsys, monkeypatch, socket_path):
    monkeypatch.setattr(sys, "remote_exec", None, raising=False)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    for target in (ended.pid, socket_path):
        assert command(["pstree", str(target)]) == 1
        assert capsys.readouterr().err.startswith(f"hotloop: process {target} cannot be asked: [Errno ")


def test_a_process_that_does_not_answer(capsys, monkeypatch):
    monkeypatch.setattr(sys, "remote_exec", lambda pid, path: None, raising=False)
    monkeypatch.setattr(remote, "_SECONDS_FOR_AN_ANSWER", 0.1)
    assert command(["ps", str(os.getpid())]) == 1
    assert "its main thread has run no Python code for 0.1 s" in capsys.readouterr().err


def test_a_loop_is_made_while_the_loops_are_described(impl, loop, tmp_path, monkeypatch):
    def describe_while_a_loop_is_made(loop):
        others.append(impl.new_event_loop())
        return {"loop": repr(loop)}

    others = []
    monkeypatch.setattr(snapshot, "describe", describe_while_a_loop_is_made)
    snapshot._write(os.fspath(tmp_path / "states"), threading.get_ident())
    for other in others:
        other.close()
    assert {"loop": repr(loop)} in json.loads((tmp_path / "states").read_text())


@pytest.mark.parametrize("words", [["ps"], ["pstree", "1", "2"], ["ps", "--once"], ["--debug", "ps", "1"]])
def test_wrong_usage(capsys, words):
    assert command(words) == 2
    assert "takes" in capsys.readouterr().err


def task(number, *awaited_by):
    return {
        "id": number,
        "name": f"Task-{number}",
        "coroutine": "work",
        "state": "waits",
        "place": None,
        "chain": [],
        "awaited_by": [*awaited_by],
    }


def test_a_task_that_two_wait_for_is_below_both():
    below = [task(3, 1, 2), task(4, 3), task(1), task(2)]
    assert tasks.render_tree(below).splitlines() == [
        "task 'Task-1', work(), waits",
        "└── task 'Task-3', work(), waits",
        "    └── task 'Task-4', work(), waits",
        "task 'Task-2', work(), waits",
        "└── task 'Task-3', work(), waits (see above)",
    ]


def test_tasks_that_wait_for_each_other_are_shown():
    assert tasks.render_tree([task(1, 2), task(2, 1), task(3)]).splitlines() == [
        "task 'Task-3', work(), waits",
        "task 'Task-1', work(), waits",
        "└── task 'Task-2', work(), waits",
        "    └── task 'Task-1', work(), waits (see above)",
    ]


def test_names_with_long_numbers():
    """int() refuses more than 4300 digits."""
    names = ["Task-9", "Task-10", "Task-" + "9" * 5000, "Task-1" + "0" * 5000]
    tree = tasks.render_tree([task(number) | {"name": name} for number, name in enumerate(reversed(names))])
    assert [line.split("'")[1] for line in tree.splitlines()] == names
