"""hotloop in subinterpreters, those with a GIL of their own and those that share the main interpreter's.

They always have the pure implementation. On `c`, the main interpreter has the extension.
"""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.only("c", "python", reason="tests the import of hotloop"),
    pytest.mark.skipif(sys.implementation.name != "cpython", reason="other interpreters have no subinterpreters"),
]

SUBINTERPRETERS = """
import os, sys
try:
    import _interpreters as interpreters  # CPython 3.13 and later
except ImportError:
    import _xxsubinterpreters as interpreters

def run_in_subinterpreter(source, kind):
    # `kind` is "isolated", as concurrent.interpreters makes them, or "legacy", which shares the main one's GIL.
    if sys.version_info >= (3, 13):
        interpreter = interpreters.create(kind)
    else:
        interpreter = interpreters.create(isolated=kind == "isolated")
    assert interpreters.run_string(interpreter, source) is None
    # CPython 3.12 crashes when it destroys a subinterpreter that has imported asyncio, also at its own end.
    if sys.version_info[:2] != (3, 12):
        interpreters.destroy(interpreter)

def end():
    sys.stdout.flush()
    if sys.version_info[:2] == (3, 12):
        os._exit(0)
"""

SERVE_AND_ASK = """
import warnings
warnings.simplefilter("error")
import asyncio
import hotloop

async def serve(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()

async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer

async def main():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, hotloop.EventLoop)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as group, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        tasks = [group.create_task(ask(port)) for _ in range(5)]
    assert [task.result() for task in tasks] == [b"hello\\n"] * 5
    assert loop.metrics().callbacks > 0
    return "ran"
"""

RUN_TWICE = (
    SERVE_AND_ASK
    + """
print(hotloop.run(main()), hotloop.run(main()), hotloop.implementation)
import hotloop._impl
print(hotloop._impl.reason, flush=True)
"""
)

kinds = pytest.mark.parametrize("kind", ["isolated", "legacy"])


@kinds
def test_a_subinterpreter_has_the_fallback_without_a_warning(impl, kind):
    out = impl.run_script(
        SUBINTERPRETERS
        + f"""
os.environ["HOTLOOP_IMPL"] = {"" if impl.name == "c" else "python"!r}
import hotloop
assert hotloop.implementation == {impl.name!r}
for _ in range(2):
    run_in_subinterpreter({RUN_TWICE!r}, {kind!r})
end()
"""
    ).stdout
    reason = (
        "HOTLOOP_IMPL=python"
        if impl.name == "python"
        else "the compiled extension is for the main interpreter, and this is a subinterpreter"
    )
    assert out == f"ran ran python\n{reason}\n" * 2


@kinds
@pytest.mark.only("c", reason="only the compiled extension is for one interpreter")
def test_a_subinterpreter_that_comes_first_leaves_the_extension_to_the_main_one(impl, kind):
    source = SUBINTERPRETERS + f"run_in_subinterpreter({RUN_TWICE!r}, {kind!r})\n" + RUN_TWICE + "end()\n"
    # Not run_script(), which imports hotloop before it runs the source.
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", source]
    environ = os.environ | {"HOTLOOP_IMPL": ""}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[::2] == ["ran ran python", "ran ran c"]


@kinds
@pytest.mark.only("c", reason="asks for the compiled extension")
def test_asking_for_the_extension_in_a_subinterpreter_is_an_error(impl, kind):
    source = """
try:
    import hotloop
    hotloop.EventLoop
except ImportError as error:
    print(error, flush=True)
"""
    out = impl.run_script(SUBINTERPRETERS + f"run_in_subinterpreter({source!r}, {kind!r})\nend()\n").stdout
    assert out == (
        "HOTLOOP_IMPL=c cannot be met: the compiled extension is for the main interpreter, and this is a "
        "subinterpreter\n"
    )


@kinds
def test_instruments_that_the_environment_asks_for_do_not_stop_the_program(impl, kind, tmp_path):
    """A subinterpreter cannot have the threads that they need. The log says so, and the loop runs."""
    source = f"""
import logging
logging.basicConfig(filename={str(tmp_path / "log")!r}, level=logging.WARNING)
{SERVE_AND_ASK}
print(hotloop.run(main()), flush=True)
"""
    out = impl.run_script(
        SUBINTERPRETERS
        + f"""
os.environ["HOTLOOP_IMPL"] = ""
os.environ["HOTLOOP_STALL_AFTER"] = "60"
os.environ["HOTLOOP_INSPECT"] = {str(tmp_path / "socket")!r}
run_in_subinterpreter({source!r}, {kind!r})
end()
"""
    ).stdout
    assert out == "ran\n"
    log = (tmp_path / "log").read_text().splitlines()
    assert len(log) == 2
    assert all("need a thread that a subinterpreter cannot have" in line for line in log)


@kinds
def test_instruments_that_the_program_asks_for_are_an_error(impl, kind):
    source = f"""
{SERVE_AND_ASK}
for options in ({{"stall_after": 60}}, {{"inspect": True}}):
    coroutine = main()
    try:
        hotloop.run(coroutine, **options)
    except RuntimeError as error:
        coroutine.close()
        print(error, flush=True)
print(hotloop.run(main(), keep_tasks=True), flush=True)
"""
    out = impl.run_script(
        SUBINTERPRETERS
        + f"""
os.environ["HOTLOOP_IMPL"] = ""
run_in_subinterpreter({source!r}, {kind!r})
end()
"""
    ).stdout
    assert out == "hotloop's instruments need a thread that a subinterpreter cannot have\n" * 2 + "ran\n"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="InterpreterPoolExecutor came with CPython 3.14")
def test_an_interpreter_pool_beside_the_loop(impl, tmp_path, monkeypatch):
    """The main interpreter's loop waits for the work of subinterpreters, which run loops of their own."""
    (tmp_path / "work.py").write_text(
        SERVE_AND_ASK + "def work():\n    return hotloop.run(main()), hotloop.implementation\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    out = impl.run_script(
        """
from concurrent.futures import InterpreterPoolExecutor
import hotloop, work

async def use_the_pool():
    loop = asyncio.get_running_loop()
    with InterpreterPoolExecutor(2) as pool:
        return await asyncio.gather(*(loop.run_in_executor(pool, work.work) for _ in range(4)))

os.environ["HOTLOOP_IMPL"] = "" if hotloop.implementation == "c" else "python"
assert hotloop.run(use_the_pool()) == [("ran", "python")] * 4
print(hotloop.implementation)
"""
    ).stdout
    assert out == f"{impl.name}\n"
