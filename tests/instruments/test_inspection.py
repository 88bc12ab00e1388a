"""The socket that a program opens for inspection."""

import asyncio
import contextlib
import errno
import gc
import os
import socket
import stat
import sys
import threading

import pytest

from hotloop import allow_inspection
from hotloop.cli import top
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
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_a_client_is_answered(loop, path, monkeypatch):
    """The client does not wait until the child has ended, and the child has no copy of the client's connection."""

    def describe(loop):
        asked.set()
        forked.wait()
        return {"pid": os.getpid()}

    asked, forked = threading.Event(), threading.Event()
    monkeypatch.setattr(inspection, "describe", describe)
    monkeypatch.setattr(top, "_SECONDS_FOR_AN_ANSWER", 5.0)
    answers = []
    client = threading.Thread(target=lambda: answers.append(top.fetch(path)))
    ends, ending = os.pipe()
    with allow_inspection(loop, path):
        client.start()
        asked.wait()
        child = os.fork()
        if child == 0:
            os.close(ending)
            os.read(ends, 1)
            os._exit(0)
        forked.set()
        client.join()
    os.close(ending)
    os.close(ends)
    os.waitpid(child, 0)
    assert answers == [{"pid": os.getpid()}]


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
