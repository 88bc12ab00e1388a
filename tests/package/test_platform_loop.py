"""hotloop on Windows: asyncio's own loop with hotloop's names.

On Windows these tests run as they are. Elsewhere each script first makes its interpreter look like Windows:
`sys.platform` says so, the extension is hidden, and a loop on a selector stands in for asyncio.ProactorEventLoop. The
file uses neither a fixture of conftest.py nor a module of the tests, because those need Unix: on Windows,
`python -m pytest --noconftest` runs it.
"""

import os
import subprocess
import sys

import pytest

AS_ON_WINDOWS = """
import asyncio, importlib.abc, sys, types
import logging, tempfile  # before sys.platform changes: they import what only Windows has

class ProactorEventLoop(asyncio.SelectorEventLoop):
    def __init__(self, proactor=None):
        assert proactor is None
        super().__init__()

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("hotloop._c.") and name.count(".") == 3:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

asyncio.ProactorEventLoop = ProactorEventLoop
if hasattr(asyncio, "EventLoop"):
    asyncio.EventLoop = ProactorEventLoop
if sys.version_info >= (3, 14):
    asyncio.windows_events = sys.modules["asyncio.windows_events"] = types.ModuleType("asyncio.windows_events")
    if sys.version_info < (3, 16):
        asyncio.windows_events._DefaultEventLoopPolicy = asyncio.unix_events._DefaultEventLoopPolicy
sys.meta_path.insert(0, Hide())
sys.platform = "win32"
"""
PRELUDE = ("" if sys.platform == "win32" else AS_ON_WINDOWS) + "import asyncio, os, sys\n"


def run(source, *options, **variables):
    """The output of a script, which must end without an error or a warning."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_")} | variables
    command = [sys.executable, "-X", "faulthandler", "-W", "error", *options, "-c", PRELUDE + source]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def test_the_loop_is_asyncios_own_under_hotloops_names():
    assert run("""
import hotloop, hotloop._impl

async def main():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, hotloop.EventLoop) and isinstance(loop, asyncio.ProactorEventLoop)
    assert type(asyncio.current_task()) is hotloop.Task is asyncio.Task
    assert type(loop.create_future()) is hotloop.Future is asyncio.Future
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0.001, "slept"))
    return task.result()

with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
    print(hotloop.run(main()), runner.run(main()), hotloop.run(main(), tasks="asyncio", keep_tasks=True))
print(hotloop.implementation)
print(hotloop._impl.reason)
with hotloop.DefaultSelector() as selector:
    assert selector.select(0) == []
""") == [
        "slept slept slept",
        "asyncio",
        "no compiled extension is installed for this interpreter, "
        "and on Windows asyncio's own loop can do more than the pure implementation",
    ]


def test_subprocesses_and_connections():
    assert run("""
import hotloop

async def answer(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()

async def main():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print(input() + '!')", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(b"hello\\n")
    print(process.returncode, out.decode().strip())
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"over TCP\\n")
        print((await reader.readline()).decode().strip())
        writer.close()
        await writer.wait_closed()

hotloop.run(main())
""") == ["0 hello!", "over TCP"]


def test_what_the_loop_cannot_say_is_not_implemented():
    assert run("""
import hotloop, selectors

async def main():
    loop = asyncio.get_running_loop()
    loop.set_slow_callback_hook(None)
    for ask in (
        loop.metrics,
        lambda: loop.set_slow_callback_hook(print),
        lambda: hotloop.watch_stalls(loop, 1.0),
        lambda: hotloop.allow_inspection(loop),
    ):
        try:
            ask()
        except NotImplementedError as error:
            print(error)

hotloop.run(main())
for options in ({"stall_after": 60}, {"inspect": True}):
    coroutine = main()
    try:
        hotloop.run(coroutine, **options)
    except NotImplementedError as error:
        coroutine.close()
        print(error)
with selectors.DefaultSelector() as selector:
    try:
        hotloop.EventLoop(selector)
    except ValueError as error:
        print(error)
""") == [
        f"{what}: not on asyncio's own loop, which hotloop has on this platform"
        for what in ("metrics", "a hook for slow callbacks", *4 * ["stalls and inspection"])
    ] + ["asyncio's loop of this platform takes no selector; HOTLOOP_IMPL=python has one that does"]


def test_instruments_that_the_environment_asks_for_do_not_stop_the_program():
    out = run(
        """
import hotloop, logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
hotloop.run(asyncio.sleep(0))
print("ran")
""",
        HOTLOOP_STALL_AFTER="60",
        HOTLOOP_INSPECT="1",
    )
    assert len(out) == 3
    assert all("not on asyncio's own loop" in line for line in out[:2])
    assert out[2] == "ran"


def test_the_loops_for_tests_have_virtual_time():
    assert run("""
import hotloop.testing

async def main():
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.sleep(3600)
    return loop.time() - before, loop.metrics().polls > 0

print(hotloop.testing.run(main()))
""") == ["(3600.0, True)"]


def test_an_unchanged_program_has_this_loop():
    assert run("""
from hotloop.cli.substitution import substitute
substitute()
import hotloop

async def main():
    return type(asyncio.get_running_loop()) is hotloop.EventLoop is asyncio.ProactorEventLoop

print(asyncio.run(main()), asyncio.SelectorEventLoop is hotloop.EventLoop)
""") == ["True False"]


def test_info_says_so():
    assert "implementation asyncio" in [
        " ".join(line.split())
        for line in run("""
from hotloop.cli.info import show
show(as_json=False)
""")
    ]


@pytest.mark.parametrize("name", ["python", "c"])
def test_the_environment_chooses_another(name):
    assert run(
        """
try:
    import hotloop
    loop = hotloop.new_event_loop()
    print(hotloop.implementation, isinstance(loop, asyncio.ProactorEventLoop), loop.metrics().polls)
    loop.close()
except ImportError as error:
    print(error)
""",
        HOTLOOP_IMPL=name,
    ) == [
        "python False 0"
        if name == "python"
        else "HOTLOOP_IMPL=c cannot be met: no compiled extension is installed for this interpreter"
    ]
