"""`python -m hotloop top`, which reads the socket that a program opens for inspection."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from hotloop.cli import top
from hotloop.cli.arguments import UsageError
from hotloop.instruments import inspection

pytest.importorskip("fcntl", reason="Windows has no such locks")
pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets"),
]
ONLY_OURS = pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress")


@pytest.fixture
def path(socket_path):
    return socket_path


# -- hotloop.run() and the command -------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, hotloop

async def main():
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, input)

hotloop.run(main(){keywords})
"""


@ONLY_OURS
@pytest.mark.parametrize("how", ["keyword", "environment"])
def test_top_shows_a_program(impl, path, how, monkeypatch):
    keywords = f", inspect={os.fspath(path)!r}" if how == "keyword" else ""
    if how == "environment":
        monkeypatch.setenv("HOTLOOP_INSPECT", os.fspath(path))
    pipe = subprocess.PIPE
    with impl.popen(PROGRAM.format(keywords=keywords), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout.readline() == "ready\n"
        command = [sys.executable, "-W", "error", "-m", "hotloop", "top", "--once", os.fspath(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        _, err = process.communicate("\n", timeout=60)
    assert (process.returncode, err) == (0, "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"process {process.pid}, Python 3.")
    assert "\n1 task\n" in done.stdout
    assert "  main(), at <string>:" in done.stdout
    assert not path.exists()


def test_top_without_a_program(path, capsys):
    assert top.run([os.fspath(path)]) == 1
    assert "cannot be asked" in capsys.readouterr().err


def test_top_of_a_program_that_ends(path, capsys, monkeypatch):
    states = [{"pid": 1, "python": "3", "hotloop": "0", "time": 1.0}]

    def fetch(_):
        if not states:
            raise ConnectionRefusedError("refused")
        return states.pop()

    monkeypatch.setattr(top, "fetch", fetch)
    assert top.run([os.fspath(path), "--interval", "0.001"]) == 1
    said = capsys.readouterr()
    assert "has ended" in said.err
    assert said.out.startswith("\x1b[H\x1b[Jprocess 1, Python 3, hotloop 0\n")


@contextlib.contextmanager
def answering(path, answer):
    """A socket that answers its first client."""

    def serve():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@ONLY_OURS
@pytest.mark.parametrize("words", ["--help", "info", "top --once PATH", "top PATH", "ps PATH"])
def test_a_reader_that_has_seen_enough(impl, path, words):
    """As in `python -m hotloop ps 4711 | head`: nothing is said about it, and least of all about the program."""
    state = {"pid": 1, "python": "3", "hotloop": "0", "time": 1.0}
    answers = answering(path, json.dumps(state).encode()) if "PATH" in words else contextlib.nullcontext()
    reading, writing = os.pipe()
    os.close(reading)
    with answers:
        command = [sys.executable, "-m", "hotloop", *words.replace("PATH", os.fspath(path)).split()]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


OTHER_ANSWERS = {
    "": "not complete",
    "[]": "none of hotloop's",
    "{}": "none of hotloop's",
    "7": "none of hotloop's",
    '{"time": []}': "none of hotloop's",
    '{"time": 1, "pid": 1, "python": "3", "hotloop": "0", "loop": "", "progress": "1"}': "none of hotloop's",
    "[" * 100_000: "not complete",
    " " * 5000: "too long",
}


@pytest.mark.parametrize("answer", OTHER_ANSWERS, ids=lambda answer: answer[:20])
def test_top_of_another_program(path, capsys, monkeypatch, answer):
    monkeypatch.setattr(top, "_LONGEST_ANSWER", 4000 if answer.isspace() else top._LONGEST_ANSWER)
    with answering(path, answer.encode()):
        assert top.run([os.fspath(path), "--once"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and OTHER_ANSWERS[answer] in said.err and said.err.count("\n") == 1


def test_top_prints_nothing_that_a_terminal_obeys(path, capsys):
    answer = state(task="\x1b]0;title\x07\u202e", progress=1, stack=["one\ntwo\x9b"], loop="\ud800")
    with answering(path, json.dumps(answer).encode()):
        assert top.run([os.fspath(path), "--once"]) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert "\\ud800\nrunning task '" in out and "\none\\ntwo\\x9b\n" in out


def test_top_of_a_process_asks_only_its_users_own(path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", os.fspath(path.parent))
    place = inspection.default_path(1)
    place.parent.mkdir(mode=0o700)
    place.parent.chmod(0o777)
    assert top.run(["1", "--once"]) == 1
    assert "not a folder of this user alone" in capsys.readouterr().err
    place.parent.chmod(0o700)
    with answering(place, b"[]"):
        assert top.run(["1", "--once"]) == 1
        assert "none of hotloop's" in capsys.readouterr().err
    with socket.socket(socket.AF_UNIX) as other:
        place.unlink()
        other.bind(os.fspath(place))
        own, lstat = os.getuid(), os.lstat

        def lstat_of_another(self):
            status = list(lstat(self))
            status[stat.ST_UID] = own if self == place.parent else own + 1
            return os.stat_result(status)

        monkeypatch.setattr("pathlib.Path.lstat", lstat_of_another)
        assert top.run(["1", "--once"]) == 1
    assert "not a socket of this user" in capsys.readouterr().err


def test_top_is_left_by_control_c(path, monkeypatch):
    def fetch(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(top, "fetch", fetch)
    assert top.run([os.fspath(path)]) == 0


def test_arguments():
    options = top.parse(["--interval", "0.5", "/run/app.sock", "--once"])
    assert (os.fspath(options.path), options.once, options.interval) == ("/run/app.sock", True, 0.5)
    assert top.parse(["123"]).path == inspection.default_path(123)


@pytest.mark.parametrize(
    "arguments", [[], ["--twice", "1"], ["1", "2"], ["1", "--interval"], ["1", "--interval", "0"], ["--interval", "x"]]
)
def test_wrong_arguments(arguments):
    with pytest.raises(UsageError):
        top.parse(arguments)


@pytest.mark.parametrize("seconds", ["86401", "1e10", "1e300", "inf", "nan", "-1"])
def test_intervals_that_are_none(seconds):
    with pytest.raises(UsageError, match="--interval must be a positive number of seconds, a day at most, not"):
        top.parse(["1", "--interval", seconds])
    assert top.parse(["1", "--interval", "86400"]).interval == 86400


def test_wrong_usage_is_one_line():
    done = subprocess.run([sys.executable, "-m", "hotloop", "top"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hotloop: top needs the number of a process") and done.stderr.count("\n") == 1


# -- the screen --------------------------------------------------------------------------------------------------------


def state(**facts):
    tasks = [task("handle", 10) for _ in range(1200)] + [task("main", 3), task("wait", None)]
    known = {"pid": 7, "python": "3.13.0", "hotloop": "0.1.0", "time": 5.0, "loop": "the event loop in thread 'T'"}
    known |= {"progress": -1, "task": None, "stack": [], "tasks": tasks, "metrics": None}
    return known | facts


def task(coroutine, line):
    place = None if line is None else ["/srv/app.py", line, coroutine]
    return {"name": "x", "coroutine": coroutine, "state": "waits", "place": place}


def test_tasks_at_the_same_place_are_one_line():
    lines = top.render(state(), None, 0.0).splitlines()
    assert lines[0] == "process 7, Python 3.13.0, hotloop 0.1.0, the event loop in thread 'T'"
    assert lines[1] == "waiting"
    assert lines[3] == "1,202 tasks"
    assert [line.split() for line in lines[5:]] == [
        ["1,200", "waits", "handle(),", "at", "/srv/app.py:10"],
        ["1", "waits", "main(),", "at", "/srv/app.py:3"],
        ["1", "waits", "wait()"],
    ]


def test_a_callback_without_a_task():
    text = top.render(state(progress=4, stack=[f"line {number}" for number in range(20)]), None, 0.0)
    assert "running a callback\nline 12\n" in text and "line 19\n" in text


@pytest.mark.parametrize("pid", [7, 8])
def test_a_program_that_was_started_again(path, capsys, monkeypatch, pid):
    """Its screen is the same as if it were the first one."""
    counters = {"busy_ns": 10**9, "idle_ns": 10**9, "callbacks": 1000, "task_steps": 10, "polls": 10}
    metrics = counters | {"bytes_received": 0, "bytes_sent": 0}
    later = {name: value // 10 for name, value in metrics.items()} if pid == 7 else metrics
    states = [state(progress=4, metrics=metrics), state(progress=4, metrics=later, pid=pid, time=9.0)]
    expected = top.render(states[1], None, 0.0).splitlines()
    assert "callbacks 500/s" in expected[1]
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, "200")

    def fetch(_):
        if not states:
            raise KeyboardInterrupt
        return states.pop(0)

    monkeypatch.setattr(top, "fetch", fetch)
    assert top.run([os.fspath(path), "--interval", "0.001"]) == 0
    screens = capsys.readouterr().out.split("\x1b[H\x1b[J")
    assert screens[2].splitlines() == expected


def test_rates():
    metrics = {"busy_ns": 250_000_000, "idle_ns": 750_000_000, "callbacks": 1000, "task_steps": 500, "polls": 40}
    metrics |= {"bytes_received": 3_000_000, "bytes_sent": 1_000_000, "transports": {"tcp": 1}}
    expected = "busy 25.0 %, callbacks 1,000/s, task steps 500/s, polls 40/s, in 3.00 MB/s, out 1.00 MB/s"
    assert top.render(state(metrics=metrics), None, 0.0).splitlines()[1] == expected
    twice = {name: value if isinstance(value, dict) else 2 * value for name, value in metrics.items()}
    assert top.render(state(metrics=twice), state(metrics=metrics), 0.0).splitlines()[1] == expected
    assert top.render(state(metrics=metrics), state(metrics=metrics), 0.0).splitlines()[1] == "waiting"
