"""tasks="asyncio": the loop's futures and tasks are asyncio's own, and everything else is hotloop's."""

import asyncio
import contextvars
import os
import socket
import subprocess
import sys

import pytest

import hotloop
from hotloop.loop import make_class_with_asyncio_tasks

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loop always has asyncio's tasks")

KINDS = """if True:
    import hotloop
    async def main():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, hotloop.EventLoop)
        task = loop.create_task(asyncio.sleep(0))
        await task
        kinds = [type(each) for each in (asyncio.current_task(), task, loop.create_future())]
        return kinds == [asyncio.Task, asyncio.Task, asyncio.Future]
"""


@pytest.fixture
def on_asyncio_tasks(impl):
    """Runs a coroutine on such a loop of this implementation."""
    event_loop = make_class_with_asyncio_tasks(impl.EventLoop)

    def run(main, **options):
        with asyncio.Runner(loop_factory=event_loop, **options) as runner:
            return runner.run(main)

    return run


@pytest.mark.parametrize("ask", ["tasks='asyncio'", ""])
def test_only_the_run_that_asks(impl, ask):
    impl.run_script(KINDS + f"    assert hotloop.run(main(), {ask}) is {bool(ask)}")


@pytest.mark.parametrize("value", ["asyncio", "hotloop", ""])
def test_the_variable_decides_for_all_loops(impl, monkeypatch, value):
    monkeypatch.setenv("HOTLOOP_TASKS", value)
    impl.run_script(
        KINDS
        + f"""
    for ask in (None, "asyncio"):
        loop = hotloop.new_event_loop(tasks=ask)
        assert loop.run_until_complete(main()) is ({value!r} == "asyncio" or ask == "asyncio")
        loop.close()
    assert hotloop.run(main()) is ({value!r} == "asyncio")
    """
    )


def command(impl, *words, **variables):
    environment = os.environ | {"HOTLOOP_IMPL": impl.name} | variables
    line = [sys.executable, "-m", "hotloop", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)


def test_on_the_command_line(impl, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import asyncio\n" + KINDS + "    print(asyncio.run(main()))")
    for words, printed in ((["--tasks", "asyncio"], "True"), (["--tasks=asyncio"], "True"), ([], "False")):
        done = command(impl, *words, str(program))
        assert (done.returncode, done.stdout, done.stderr) == (0, printed + "\n", "")


@pytest.mark.parametrize("words", [["--tasks", "uvloop", "p.py"], ["--tasks"], ["--tasks", "asyncio", "top", "1"]])
def test_what_the_command_line_refuses(impl, words):
    done = command(impl, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_wrong_variable_is_reported(impl):
    done = command(impl, "info", HOTLOOP_TASKS="trio")
    assert done.returncode == 2
    assert done.stderr.startswith("hotloop: HOTLOOP_TASKS must be 'asyncio' or 'hotloop', or unset; it is 'trio'")


@pytest.mark.parametrize("wrong", ["hotloop", "", 1, True])
def test_a_wrong_argument_is_a_value_error(impl, wrong):
    with pytest.raises(ValueError, match="tasks must be 'asyncio' or None"):
        hotloop.new_event_loop(tasks=wrong)
    main = asyncio.sleep(0)
    with pytest.raises(ValueError, match="tasks must be 'asyncio' or None"):
        hotloop.run(main, tasks=wrong)
    main.close()


@pytest.mark.parametrize("debug", [False, True])
def test_programs_run_on_them(on_asyncio_tasks, debug):
    async def echo(reader, writer):
        writer.write(await reader.readexactly(5))
        writer.close()

    async def ask(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(port), name=f"ask {number}") for number in range(20)]
        server.close()
        await server.wait_closed()
        assert {type(task) for task in asked} == {asyncio.Task}
        return [(task.get_name(), task.result()) for task in asked]

    assert on_asyncio_tasks(main(), debug=debug) == [(f"ask {number}", b"hello") for number in range(20)]


def test_waits_for_sockets_are_cancelled(on_asyncio_tasks):
    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            waits = asyncio.create_task(loop.sock_recv(one, 9))
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {waits, asyncio.current_task()}
            waits.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await waits
            other.send(b"still there")
            return await loop.sock_recv(one, 99)

    assert on_asyncio_tasks(main()) == b"still there"


def test_task_factories_and_eager_tasks(on_asyncio_tasks):
    made = []

    async def returns(): ...

    def factory(loop, coro, **options):
        made.append(options)
        return asyncio.Task(coro, loop=loop, **options)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        assert await loop.create_task(asyncio.sleep(0, "by the factory")) == "by the factory"
        assert len(made) == 1
        if hasattr(asyncio, "eager_task_factory"):
            loop.set_task_factory(asyncio.eager_task_factory)
            assert loop.create_task(returns()).done()

    on_asyncio_tasks(main())


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_keywords_of_create_task_as_on_asyncio(on_asyncio_tasks, monkeypatch, debug, replaced):
    variable = contextvars.ContextVar("variable", default="unset")
    context = contextvars.copy_context()
    context.run(variable.set, "set")

    class OtherTask(asyncio.Task):
        pass

    async def read():
        return variable.get()

    async def main():
        loop = asyncio.get_running_loop()
        found = []
        for keywords in (
            {},
            {"name": None},
            {"name": "one"},
            {"name": 2, "context": None},
            {"context": context},
            {"name": "three", "context": context},
            {"name": "four", "nonsense": True},
        ):
            coro = read()
            try:
                task = loop.create_task(coro, **keywords)
            except TypeError:
                found.append(TypeError)
                coro.close()
            else:
                found.append((type(task), task.get_name() if keywords.get("name") else None, await task))
        return found

    if replaced:
        monkeypatch.setattr(asyncio.tasks, "Task", OtherTask)
    found = on_asyncio_tasks(main(), debug=debug)
    assert found == asyncio.run(main(), debug=debug)
    assert found[5] == (asyncio.tasks.Task, "three", "set")


def test_metrics_and_pictures_show_them(on_asyncio_tasks):
    async def waits():
        await asyncio.sleep(3600)

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(waits(), name="the one that waits")
        before = loop.metrics()
        for _ in range(10):
            await asyncio.sleep(0)
        after = loop.metrics()
        picture = hotloop.format_tasks(loop)
        task.cancel()
        return after.callbacks - before.callbacks, picture

    callbacks, picture = on_asyncio_tasks(main())
    assert callbacks >= 10
    assert "the one that waits" in picture
    assert "waits()" in picture
