"""The socket that a program opens for inspection, and `python -m hotloop top`, which reads it."""

import asyncio
import contextlib
import errno
import gc
import json
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from hotloop import allow_inspection
from hotloop.cli import top
from hotloop.cli.arguments import UsageError
from hotloop.instruments import inspection

fcntl = pytest.importorskip("fcntl", reason="Windows has no such locks")
pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets"),
]
ONLY_OURS = pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress")


@pytest.fixture
def path(socket_path):
    return socket_path


# -- answers -----------------------------------------------------------------------------------------------------------


@ONLY_OURS
def test_a_loop_that_waits(impl, path):
    async def wait():
        await asyncio.sleep(3600)

    async def main():
        task = asyncio.create_task(wait(), name="waiter")
        await asyncio.sleep(0)
        with allow_inspection(asyncio.get_running_loop(), path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            state = await asyncio.to_thread(top.fetch, path)
        task.cancel()
        return state

    state = impl.run(main())
    assert not path.exists()
    assert state["pid"] == os.getpid()
    assert state["loop"] == "the event loop in thread 'MainThread'"
    tasks = {task["name"]: task for task in state["tasks"]}
    waiter = tasks.pop("waiter")
    assert (waiter["coroutine"], waiter["state"]) == ("test_a_loop_that_waits.<locals>.wait", "waits")
    assert waiter["place"][0] == __file__
    [other] = tasks.values()
    assert other["coroutine"] == "test_a_loop_that_waits.<locals>.main"


@ONLY_OURS
def test_a_loop_that_is_blocked(impl, path):
    def look():
        blocked.wait()
        states.extend(top.fetch(path) for _ in range(2))
        seen.set()

    def block():
        blocked.set()
        seen.wait()

    async def main():
        thread = threading.Thread(target=look)
        with allow_inspection(asyncio.get_running_loop(), path):
            thread.start()
            block()
            thread.join()

    states, blocked, seen = [], threading.Event(), threading.Event()
    impl.run(main())
    first, second = states
    assert first["progress"] == second["progress"] >= 0
    assert first["task"].startswith("Task-")
    assert any(line.endswith(".block") for line in first["stack"])
    screen = top.render(second, first, second["time"] - first["time"] + 1)
    assert "running task 'Task-" in screen and ", the same for 1." in screen
    assert ".block" in screen


@ONLY_OURS
def test_a_loop_that_is_gone(impl, path):
    loop = impl.new_event_loop()
    with allow_inspection(loop, path):
        assert top.fetch(path)["progress"] == -1
        loop.close()
        assert "loop" not in top.fetch(path)
        del loop
        gc.collect()
        state = top.fetch(path)
    assert "loop" not in state
    assert top.render(state, None, 0.0).endswith("\nits event loop was closed")


@ONLY_OURS
def test_clients_that_do_not_read(loop, path, monkeypatch, caplog):
    """Such clients get no answer, and do not disturb later ones."""
    monkeypatch.setattr(inspection, "_SECONDS_FOR_A_CLIENT", 0.01)
    monkeypatch.setattr(inspection, "describe", lambda loop: "x" * 5_000_000)
    with allow_inspection(loop, path), socket.socket(socket.AF_UNIX) as idle:
        idle.connect(os.fspath(path))
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as gone:
                gone.connect(os.fspath(path))
        monkeypatch.setattr(inspection, "describe", lambda loop: 1 / 0)
        with pytest.raises(ConnectionAbortedError, match="not complete"):
            top.fetch(path)
        monkeypatch.undo()
        assert top.fetch(path)["pid"] == os.getpid()
    assert {record.name for record in caplog.records} == {"hotloop.inspection"}


@ONLY_OURS
def test_clients_that_do_not_read_keep_none_out(loop, path, monkeypatch):
    """Each client beyond the limit displaces the first one, however slow the clients are."""
    monkeypatch.setattr(inspection, "_SECONDS_FOR_A_CLIENT", 3600)
    monkeypatch.setattr(inspection, "describe", lambda loop: {"x": "x" * 5_000_000})
    with contextlib.ExitStack() as idle, allow_inspection(loop, path):
        for _ in range(3 * inspection._CLIENTS_AT_MOST):
            idle.enter_context(socket.socket(socket.AF_UNIX)).connect(os.fspath(path))
        assert top.fetch(path) == {"x": "x" * 5_000_000}


# -- the socket's file -------------------------------------------------------------------------------------------------


@ONLY_OURS
def test_a_socket_that_was_left_behind(loop, path):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(os.fspath(path))
    with allow_inspection(loop, path):
        assert top.fetch(path)["pid"] == os.getpid()


@ONLY_OURS
def test_a_socket_in_use(loop, path):
    with allow_inspection(loop, path):
        with pytest.raises(OSError, match="another program answers"):
            allow_inspection(loop, path)
        assert top.fetch(path)["pid"] == os.getpid()


@ONLY_OURS
@pytest.mark.skipif(sys.platform != "linux", reason="BSD refuses the connection, as if no program listened")
def test_a_socket_of_a_busy_program(loop, path):
    """It does not accept: connections wait, as many as may."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as clients:
        listener.bind(os.fspath(path))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(os.fspath(path))
        with pytest.raises(OSError, match="another program answers"):
            allow_inspection(loop, path)
        assert path.exists()


@ONLY_OURS
@pytest.mark.parametrize("left_behind", [False, True])
def test_a_socket_that_another_is_about_to_open(impl, loop, path, monkeypatch, left_behind):
    """Between bind() and listen() it refuses connections, as one does that was left behind."""
    with contextlib.closing(impl.new_event_loop()) as other:

        def open_another():
            try:
                allow_inspection(other, path).stop()
            except OSError as error:
                refused.append(error.errno)
            finally:
                arrived.set()

        def flock(descriptor, operation):
            if threading.current_thread() is thread:
                arrived.set()
            lock(descriptor, operation)

        def listen_when_another_has_arrived(listener):
            if threading.current_thread() is not thread:
                thread.start()
                arrived.wait()
            listen(listener)

        refused, arrived, thread = [], threading.Event(), threading.Thread(target=open_another)
        lock, listen = fcntl.flock, socket.socket.listen
        if left_behind:
            with socket.socket(socket.AF_UNIX) as old:
                old.bind(os.fspath(path))
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", flock)
            patch.setattr(socket.socket, "listen", listen_when_another_has_arrived)
            opened = allow_inspection(loop, path)
            thread.join()
        assert refused == [errno.EADDRINUSE]
        assert os.listdir(path.parent) == [path.name]
        assert top.fetch(path)["pid"] == os.getpid()
        opened.stop()
    assert os.listdir(path.parent) == []


@ONLY_OURS
def test_a_socket_that_its_owner_removes_meanwhile(loop, path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(os.fspath(path))
    with monkeypatch.context() as patch:
        patch.setattr(stat, "S_ISSOCK", lambda mode: path.unlink() is None)
        opened = allow_inspection(loop, path)
    with opened:
        assert top.fetch(path)["pid"] == os.getpid()


@ONLY_OURS
def test_a_lock_of_another_user(loop, path, monkeypatch):
    """That user could hold it for ever."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: -1)
        with pytest.raises(PermissionError, match="belongs to another user"):
            allow_inspection(loop, path)
    assert not path.exists()
    with allow_inspection(loop, path):
        assert os.listdir(path.parent) == [path.name]


@ONLY_OURS
def test_a_file_that_is_no_socket(loop, path):
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        allow_inspection(loop, path)
    assert path.read_text() == "precious"


@ONLY_OURS
def test_what_has_taken_its_place_is_left_alone(loop, path):
    opened = allow_inspection(loop, path)
    path.rename(path.with_name("moved"))
    path.write_text("another")
    opened.stop()
    opened.stop()
    assert path.read_text() == "another"


@ONLY_OURS
def test_the_folder_is_private(loop, path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", os.fspath(path.parent))
    with allow_inspection(loop) as opened:
        assert opened.path == inspection.default_path(os.getpid())
        assert stat.S_IMODE(opened.path.parent.stat().st_mode) == 0o700
        assert top.fetch(top.parse([str(os.getpid())]).path)["pid"] == os.getpid()
    opened.path.parent.chmod(0o755)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        allow_inspection(loop)
    opened.path.parent.rmdir()
    opened.path.parent.symlink_to(path.parent)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        allow_inspection(loop)


@ONLY_OURS
def test_the_loops_of_a_process_have_numbers(impl, loop, path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", os.fspath(path.parent))
    first = inspection.default_path(os.getpid())
    with contextlib.closing(impl.new_event_loop()) as other, allow_inspection(loop) as opened:
        with allow_inspection(other) as numbered:
            assert [opened.path, numbered.path] == [first, first.with_name(f"{os.getpid()}-2.sock")]
            assert top.fetch(numbered.path)["pid"] == os.getpid()
        assert [opened.path.exists(), numbered.path.exists()] == [True, False]


@ONLY_OURS
def test_no_descriptors_are_left(loop, path, monkeypatch):
    """The client waits until descriptors are available again."""

    class Full:
        def __init__(self, listener):
            self.listener = listener
            self.refused = 0

        def accept(self):
            if self.refused < 3:
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.listener.accept()

        def __getattr__(self, name):
            return getattr(self.listener, name)

    monkeypatch.setattr(inspection, "_SECONDS_BEFORE_THE_NEXT", 0.001)
    listen = inspection._listen
    monkeypatch.setattr(inspection, "_listen", lambda path: Full(listen(path)))
    with allow_inspection(loop, path) as opened:
        assert top.fetch(path)["pid"] == os.getpid()
        assert opened._listener.refused == 3


@ONLY_OURS
def test_the_end_of_a_program_removes_it(impl, path):
    impl.run_script(f"""if True:
        import hotloop
        loop = hotloop.new_event_loop()
        hotloop.allow_inspection(loop, {os.fspath(path)!r})
        loop.close()
    """)
    assert not path.exists()


@ONLY_OURS
def test_the_program_changes_its_folder(loop, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with allow_inspection(loop, path.name) as opened:
        assert opened.path == path
        monkeypatch.chdir("/")
        assert top.fetch(path)["pid"] == os.getpid()
    assert not path.exists()


@ONLY_OURS
@pytest.mark.parametrize("step", ["os.chmod", "socket.socket.listen", "socket.socketpair"])
def test_what_is_left_where_a_step_fails(loop, path, monkeypatch, step):
    def fail(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(step, fail)
        with pytest.raises(OSError, match="Too many open files"):
            allow_inspection(loop, path)
    assert not path.exists()


@ONLY_OURS
def test_bad_input(loop, impl, path):
    other = asyncio.SelectorEventLoop()
    with contextlib.closing(other), pytest.raises(TypeError, match="only hotloop's event loops"):
        allow_inspection(other, path)
    closed = impl.new_event_loop()
    closed.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        allow_inspection(closed, path)
    with pytest.raises(FileNotFoundError):
        allow_inspection(loop, path / "missing" / "s")


@ONLY_OURS
def test_no_thread_can_be_started(loop, path, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            allow_inspection(loop, path)
    assert not path.exists()


@ONLY_OURS
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
def test_a_forked_child(impl, path):
    """The child neither answers nor removes the parent's socket, and has none of its descriptors."""
    impl.run_script(f"""if True:
        import hotloop, warnings
        from hotloop.cli import top
        warnings.simplefilter("ignore", DeprecationWarning)  # fork() in a process with threads
        loop = hotloop.new_event_loop()
        before = set(os.listdir("/dev/fd"))
        with hotloop.allow_inspection(loop, {os.fspath(path)!r}) as opened:
            assert top.fetch(opened.path)["pid"] == os.getpid()
            pid = os.fork()
            if pid == 0:
                opened.stop()
                # A kqueue, of the loop's own poller, is not inherited.
                os._exit(0 if opened.path.exists() and set(os.listdir("/dev/fd")) <= before else 1)
            assert os.waitpid(pid, 0)[1] == 0
            assert top.fetch(opened.path)["pid"] == os.getpid()
        assert not opened.path.exists()
        loop.close()
    """)


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
