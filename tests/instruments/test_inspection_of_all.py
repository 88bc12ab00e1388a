"""HOTLOOP_INSPECT: every loop of a program opens its own socket for `python -m hotloop top`."""

import os
import socket
import subprocess
import sys

import pytest

from hotloop import allow_inspection
from hotloop.cli import top
from hotloop.instruments import inspection

pytestmark = [
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets"),
    pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress"),
]

PRELUDE = """if True:
    import asyncio, os, subprocess, sys, threading, warnings
    from pathlib import Path
    import hotloop
    from hotloop.cli import top
    from hotloop.instruments import inspection
    path = Path(os.environ["HOTLOOP_INSPECT"])

    async def answers(path=path):
        state = await asyncio.to_thread(top.fetch, path)
        return state["pid"] == os.getpid() and "loop" in state

    async def main():
        assert await answers()
"""


@pytest.fixture
def asked(socket_path, monkeypatch):
    monkeypatch.setenv("HOTLOOP_INSPECT", os.fspath(socket_path))
    return socket_path


WITH_A_FINALIZER = """
    import faulthandler, gc

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            hotloop.run(asyncio.sleep(0))

    faulthandler.dump_traceback_later(20, exit=True)
"""


@pytest.mark.parametrize("where", ["_make_private_folder", "_is_file_at", "_remove_stale", "Path.unlink"])
def test_a_finalizer_that_runs_a_loop_while_anothers_socket_is_opened(impl, monkeypatch, where):
    """The collector may run it anywhere."""
    monkeypatch.setenv("HOTLOOP_INSPECT", "1")
    impl.run_script(
        PRELUDE.partition("path =")[0]
        + WITH_A_FINALIZER
        + f"""
    original = inspection.{where}
    def before(*arguments, **options):
        inspection.{where} = original
        Garbage()
        gc.collect()
        return original(*arguments, **options)
    inspection.{where} = before
    hotloop.run(asyncio.sleep(0))
    """
    )


WAYS = {
    "hotloop.run": "hotloop.run(main())",
    "Runner": """
    with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
        runner.run(main())
    """,
    "EventLoop": """
    loop = hotloop.EventLoop()
    loop.run_until_complete(main())
    loop.close()
    """,
    "policy": """
    warnings.simplefilter("ignore", DeprecationWarning)
    hotloop.install()
    asyncio.run(main())
    """,
}
if sys.version_info >= (3, 16):
    del WAYS["policy"]  # there are no policies any more


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_make_a_loop(impl, asked, way):
    impl.run_script(PRELUDE + f"    {WAYS[way]}")
    assert not asked.exists()


def test_an_unchanged_program(impl, asked, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import asyncio\n\nasync def main():\n    input('ready\\n')\n\nasyncio.run(main())\n")
    command = [sys.executable, "-W", "error", "-m", "hotloop", "--impl", impl.name, os.fspath(program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        assert top.fetch(asked)["pid"] == process.pid
        _, err = process.communicate("\n", timeout=60)
    assert (process.returncode, err) == (0, "")
    assert not asked.exists()


def test_it_lasts_from_the_first_run_until_the_loop_is_closed(impl, asked):
    impl.run_script(f"""{PRELUDE}
    loop = hotloop.new_event_loop()
    assert not path.exists()
    loop.run_until_complete(main())
    inode = path.stat().st_ino
    assert top.fetch(path)["progress"] == -1
    loop.run_until_complete(main())
    assert path.stat().st_ino == inode
    loop.close()
    assert not path.exists()
    loop.close()
    """)


def test_a_loop_that_is_dropped_unclosed(impl, asked):
    """The garbage collector has it closed: neither its socket nor the thread that answers there stays.

    The collector may run where this thread holds a lock that the other needs to end."""
    impl.run_script(f"""{PRELUDE}
    import gc
    warnings.simplefilter("ignore", ResourceWarning)
    loop = hotloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    assert path.exists()
    [thread] = set(threading.enumerate()) - {{threading.main_thread()}}
    with threading._active_limbo_lock:
        del loop
        gc.collect()
        assert not path.exists()
    thread.join()
    """)


def test_several_loops_have_numbers(impl, asked):
    impl.run_script(f"""{PRELUDE}
    numbered = [path, path.with_name(f"{{path.stem}}-2"), path.with_name(f"{{path.stem}}-3")]
    loops = [hotloop.new_event_loop() for _ in range(3)]
    for loop, its_path in zip(loops, numbered):
        assert loop.run_until_complete(answers(its_path))
    assert all(each.exists() for each in numbered)
    # A number is free again when its loop is closed.
    loops[1].close()
    assert [each.exists() for each in numbered] == [True, False, True]
    loops[1] = hotloop.new_event_loop()
    assert loops[1].run_until_complete(answers(numbered[1]))
    for loop in loops:
        loop.close()
    assert not any(each.exists() for each in numbered)
    """)


def test_loops_in_threads_at_once(impl, asked):
    impl.run_script(f"""{PRELUDE}
    async def together():
        barrier.wait()
        [its] = [each.path for each in list(inspection._inspections) if each.shows(asyncio.get_running_loop())]
        assert await answers(its)
        barrier.wait()
        found.append(its.name)

    found = []
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=lambda: hotloop.run(together())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([path.name, *(f"{{path.name}}-{{number}}" for number in range(2, 9))])
    """)


def test_the_number_comes_before_the_suffix(impl, asked, monkeypatch):
    monkeypatch.setenv("HOTLOOP_INSPECT", os.fspath(asked.with_name("s.sock")))
    impl.run_script(f"""{PRELUDE}
    async def outer():
        await main()
        assert await asyncio.to_thread(lambda: hotloop.run(answers(path.with_name("s-2.sock"))))

    hotloop.run(outer())
    """)


def test_by_the_number_of_the_process(impl, asked, monkeypatch):
    monkeypatch.setenv("HOTLOOP_INSPECT", "1")
    impl.run_script(f"""{PRELUDE}
    import tempfile
    tempfile.tempdir = {os.fspath(asked.parent)!r}
    path = inspection.default_path(os.getpid())
    second = path.with_name(f"{{os.getpid()}}-2.sock")

    async def outer():
        assert await answers(path)
        assert await asyncio.to_thread(lambda: hotloop.run(answers(second)))

    hotloop.run(outer())
    assert list(path.parent.iterdir()) == []
    """)


def test_a_child_with_the_same_path_has_the_next_number(impl, asked):
    child = """if True:
        import asyncio, os, hotloop
        from hotloop.cli import top

        async def main():
            state = await asyncio.to_thread(top.fetch, os.environ["HOTLOOP_INSPECT"] + "-2")
            assert state["pid"] == os.getpid()

        hotloop.run(main())
    """
    impl.run_script(f"""{PRELUDE}
    async def parent():
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", {child!r}])
        assert done.returncode == 0
        assert await answers()

    hotloop.run(parent())
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
def test_a_loop_that_goes_on_in_a_forked_child(impl, asked):
    impl.run_script(f"""{PRELUDE}
    warnings.simplefilter("ignore", DeprecationWarning)  # fork() in a process with threads
    loop = hotloop.new_event_loop()
    loop.run_until_complete(loop.create_task(asyncio.sleep(0)))
    pid = os.fork()
    if pid == 0:
        theirs = path.with_name(f"{{path.name}}-2")
        good = loop.run_until_complete(answers(theirs))
        loop.close()
        os._exit(0 if good and path.exists() and not theirs.exists() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    """)


@pytest.mark.parametrize("wanted", ["False", "path.with_name('other')"])
def test_who_says_what_he_wants_gets_that(impl, asked, wanted):
    impl.run_script(f"""{PRELUDE}
    wanted = {wanted}

    async def main():
        assert not path.exists()
        assert not wanted or await answers(wanted)

    hotloop.run(main(), inspect=wanted)
    """)


def test_a_loop_that_has_a_socket_already(impl, asked):
    impl.run_script(f"""{PRELUDE}
    loop = hotloop.new_event_loop()
    other = path.with_name("other")
    with hotloop.allow_inspection(loop, other):
        assert loop.run_until_complete(answers(other))
        assert not path.exists()
    loop.close()
    """)


def test_a_place_where_there_can_be_none(impl, asked, monkeypatch):
    """One warning, and the program goes on."""
    monkeypatch.setenv("HOTLOOP_INSPECT", os.fspath(asked / "missing" / "s"))
    source = f"""{PRELUDE}
    loop = hotloop.new_event_loop()
    for _ in range(2):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    """
    done = impl.run_script(source, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("HOTLOOP_INSPECT: an event loop cannot be looked at: [Errno 2]")
    assert len(done.stderr.splitlines()) == 1


def test_the_code_that_blocks_the_loop_is_shown(impl, asked):
    """Here a method of the instruments runs the loop; the stack leaves out its frames."""
    impl.run_script(f"""{PRELUDE}
    import signal

    def block(blocked, seen):
        blocked.set()
        seen.wait()

    def look(loop, blocked, seen):
        blocked.wait()
        states.append(top.fetch(path))
        texts.append(hotloop.format_tasks(loop))
        seen.set()

    async def main():
        loop, blocked, seen = asyncio.get_running_loop(), threading.Event(), threading.Event()
        looking = loop.run_in_executor(None, look, loop, blocked, seen)
        block(blocked, seen)
        await looking
        with hotloop.dump_tasks_on(loop, signal.SIGUSR1, texts.append):
            raise_signal()
        texts.append(hotloop.format_tasks(loop))

    def raise_signal():
        signal.raise_signal(signal.SIGUSR1)

    states, texts = [], []
    hotloop.run(main())
    [state] = states
    [task] = state["tasks"]
    assert (task["state"], task["place"][2]) == ("runs", "block"), task
    assert any(line.endswith("in block") for line in state["stack"]), state["stack"]
    names = ["block", "raise_signal", "main"]
    for text, name in zip(texts, names, strict=True):
        assert text.rstrip().endswith(f"in {{name}}") or name == "block" and "in block" in text, text
    """)


VALUES = {
    "off": ["", "0", "no", "False", "OFF"],
    "on": ["1", "true", "YES", "on"],
    "neither": ["app.sock", "2", "y"],
}


@pytest.mark.parametrize("value", [value for values in VALUES.values() for value in values])
def test_values(impl, asked, monkeypatch, value):
    """A value that is not a path makes no file."""
    monkeypatch.setenv("HOTLOOP_INSPECT", value)
    folder = os.fspath(asked.parent)
    done = impl.run_script(f"""if True:
    import hotloop, tempfile
    tempfile.tempdir = {folder!r}
    os.chdir({folder!r})

    async def main():
        for folder, _, names in os.walk("."):
            print(*(name.replace(str(os.getpid()), "PID") for name in names))

    hotloop.run(main())
    """, check=False)  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.split() == (["PID.sock"] if value in VALUES["on"] else [])
    warned = f"HOTLOOP_INSPECT: an event loop cannot be looked at: {value!r} is neither 1 nor 0 nor a path"
    assert done.stderr.startswith(warned) if value in VALUES["neither"] else done.stderr == ""


def test_a_relative_path(impl, asked, monkeypatch):
    """A loop that finds the path taken uses the program's current folder; after chdir() it still removes its socket."""
    monkeypatch.setenv("HOTLOOP_INSPECT", "./s.sock")
    monkeypatch.chdir(asked.parent)
    impl.run_script("""if True:
    import hotloop

    async def inner():
        assert set(os.listdir(folder)) == {"s.sock", "s-2.sock"}

    async def outer():
        assert os.listdir(folder) == ["s.sock"]
        await asyncio.to_thread(lambda: hotloop.run(inner()))
        os.chdir("/")

    folder = os.getcwd()
    hotloop.run(outer())
    assert os.listdir(folder) == []
    """)


def test_closed_and_nested_loops_fail_as_ever(impl, asked):
    impl.run_script(f"""{PRELUDE}
    def fails(with_):
        try:
            loop.run_forever()
        except RuntimeError as error:
            return with_ in str(error)

    async def nested():
        assert fails("already running")
        assert await answers()

    loop = hotloop.new_event_loop()
    loop.run_until_complete(nested())
    loop.close()
    assert fails("closed")
    assert not path.exists()
    """)


def test_where_it_is_not_set_nothing_is_there(impl, monkeypatch):
    monkeypatch.delenv("HOTLOOP_INSPECT", raising=False)
    impl.run_script("""if True:
        import hotloop

        async def main():
            pass

        hotloop.run(main())
        assert "hotloop.instruments.inspection" not in sys.modules
        assert "run_forever" not in vars(hotloop.EventLoop)
    """)


def test_stopped_by_its_own_thread(loop, socket_path, monkeypatch):
    """As when everything else drops the loop while the inspection's thread looks at it: then that thread closes it."""
    opened = allow_inspection(loop, socket_path)
    monkeypatch.setattr(inspection, "describe", lambda loop: opened.stop() or {})
    assert top.fetch(socket_path) == {}
    opened._thread.join()
    assert not socket_path.exists()
