"""hotloop.run(..., keep_tasks=True): the garbage collector ends no pending task, and those that are left are named."""

import asyncio
import gc
import sys
import types

import pytest

from hotloop.instruments.kept_tasks import KeptTasks
from hotloop.loop import make_class_with, make_class_with_asyncio_tasks

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loops do not keep their tasks")


@pytest.fixture(params=["hotloop", "asyncio"])
def kept_loop(request, impl):
    """A loop that keeps its tasks, which are hotloop's or asyncio's."""
    event_loop = impl.EventLoop if request.param == "hotloop" else make_class_with_asyncio_tasks(impl.EventLoop)
    loop = make_class_with(KeptTasks, event_loop)()
    yield loop
    loop.close()


async def waits():
    await asyncio.get_running_loop().create_future()


async def returns(value=None):
    return value


async def cancelled(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def others():
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_a_task_that_nothing_else_holds_stays(kept_loop):
    async def main():
        asyncio.create_task(waits())  # noqa: RUF006
        await asyncio.sleep(0)
        gc.collect()
        left = others()
        await cancelled(left)
        return len(left)

    assert kept_loop.run_until_complete(main()) == 1


def test_a_task_that_is_done_is_let_go(kept_loop):
    async def main():
        tasks = [asyncio.create_task(returns(5)), asyncio.create_task(waits())]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    kept_loop.run_until_complete(main())
    assert kept_loop._kept == set()


def test_tasks_of_a_group(kept_loop):
    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(returns(number), name=f"task {number}") for number in range(3)]
        return [(task.get_name(), task.result()) for task in tasks]

    assert kept_loop.run_until_complete(main()) == [("task 0", 0), ("task 1", 1), ("task 2", 2)]


def test_what_a_task_factory_returns(kept_loop):
    """What is no future is passed on."""
    other = types.SimpleNamespace(set_name=str)  # asyncio of some versions names what a factory has made

    def factory(loop, coro, **keywords):
        coro.close()
        return other

    kept_loop.set_task_factory(factory)
    assert kept_loop.create_task(returns()) is other
    assert kept_loop._kept == set()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks(kept_loop):
    kept_loop.set_task_factory(asyncio.eager_task_factory)

    async def main():
        assert asyncio.create_task(returns()).done()
        asyncio.create_task(waits())  # noqa: RUF006
        gc.collect()
        left = others()
        await cancelled(left)
        return len(left)

    assert kept_loop.run_until_complete(main()) == 1


def test_debug_mode_shows_where_the_program_made_the_task(kept_loop):
    kept_loop.set_debug(True)

    async def main():
        task = asyncio.create_task(returns())
        await task
        return task._source_traceback[-1].name, task._source_traceback[-2].filename

    name, filename = kept_loop.run_until_complete(main())
    assert name == "create_task"  # asyncio's function, as without keeping
    assert filename == __file__


def test_the_end_names_what_is_left(kept_loop, caplog):
    async def main():
        tasks = [asyncio.create_task(waits(), name=name) for name in ("Task-10", "Task-9")]
        await asyncio.sleep(0)
        kept_loop.report_kept_tasks()
        await cancelled(tasks[:1])
        await cancelled(tasks[1:])

    kept_loop.run_until_complete(main())
    kept_loop.report_kept_tasks()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("hotloop.tasks", "WARNING")
    lines = record.getMessage().splitlines()
    # The main task is one of them here.
    assert lines[0] == "3 tasks were pending at the end:"
    left = [line for line in lines[1:] if "waits()" in line]
    assert [line.split(":")[0].strip() for line in left] == ["Task-9", "Task-10"]
    assert all(f"at {__file__}:" in line for line in left)


@pytest.mark.parametrize("tasks", [None, "asyncio"])
@pytest.mark.parametrize("keep", [True, False])
def test_run(impl, tasks, keep):
    done = impl.run_script(
        f"""if True:
    import hotloop, logging
    logging.basicConfig(stream=sys.stdout, format="%(name)s %(message)s")

    async def waits():
        try:
            await asyncio.sleep(3600)
        finally:
            print("cancelled")

    async def main():
        asyncio.create_task(waits(), name="left")
        await asyncio.sleep(0)
        return 5

    assert hotloop.run(main(), tasks={tasks!r}, keep_tasks={keep}) == 5
    """
    )
    lines = done.stdout.splitlines()
    assert lines.pop() == "cancelled"
    if keep:
        assert lines.pop(0) == "hotloop.tasks 1 task was pending at the end:"
        assert lines.pop(0).startswith("  left: waits(), at ")
    assert lines == []


def test_run_reports_when_the_program_fails(impl):
    done = impl.run_script(
        """if True:
    import hotloop, logging
    logging.basicConfig(stream=sys.stdout, format="%(message)s")

    async def main():
        asyncio.create_task(asyncio.sleep(3600), name="left")
        await asyncio.sleep(0)
        raise LookupError("of the program")

    try:
        hotloop.run(main(), keep_tasks=True)
    except LookupError as error:
        print(error)
    """
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "1 task was pending at the end:"
    assert lines[1].startswith("  left: sleep(), at ")
    assert lines[2:] == ["of the program"]
