"""all_tasks(), current_task(), stacks, reprs and 3.14's call graphs."""

import asyncio
import io
import sys
import threading

import anyio
import pytest
from support.stepping import run_once


async def waiting(future):
    await future


def test_current_task(loop):
    async def main():
        await asyncio.sleep(0)
        return asyncio.current_task()

    task = loop.create_task(main())
    assert loop.run_until_complete(task) is task
    assert asyncio.current_task(loop) is None


def test_current_task_as_another_thread_sees_it(loop):
    async def main():
        seen = []
        thread = threading.Thread(target=lambda: seen.append(asyncio.current_task(loop)))
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        return seen

    task = loop.create_task(main())
    assert loop.run_until_complete(task) == [task]


@pytest.mark.only("c", reason="looks into the extension")
@pytest.mark.skipif(not (3, 14) <= sys.version_info < (3, 16), reason="the thread state has it since 3.14")
def test_the_current_task_is_set_without_a_call(loop):
    """Calling asyncio's functions to set it would be slower, and no other test would fail."""
    from hotloop._c.tasks import current_task

    assert current_task.is_set_directly()


def test_current_task_in_a_plain_callback_is_none(loop):
    """A callback has no current task, even right after a task's step; nor has a timer or a done callback."""
    seen = []

    async def main():
        loop.call_soon(lambda: seen.append(asyncio.current_task()))
        loop.call_later(0, lambda: seen.append(asyncio.current_task()))
        future = loop.create_future()
        future.add_done_callback(lambda _: seen.append(asyncio.current_task()))
        future.set_result(None)
        for _ in range(4):
            await asyncio.sleep(0)
        while len(seen) < 3:
            await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    assert seen == [None] * 3


def test_current_task_outside_a_loop(loop):
    with pytest.raises(RuntimeError):
        asyncio.current_task()
    run_once(loop)
    assert asyncio.current_task(loop) is None


def test_current_task_of_interleaved_tasks(loop):
    async def main(number):
        for _ in range(10):
            assert asyncio.current_task().get_name() == f"number {number}"
            await asyncio.sleep(0)

    async def all_of_them():
        await asyncio.gather(*(loop.create_task(main(number), name=f"number {number}") for number in range(10)))

    loop.run_until_complete(all_of_them())


def test_current_task_is_gone_after_an_exception(loop):
    async def main():
        raise KeyboardInterrupt

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert type(task.exception()) is KeyboardInterrupt
    assert asyncio.current_task(loop) is None
    seen = []
    loop.call_soon(lambda: seen.append(asyncio.current_task()))
    run_once(loop)
    assert seen == [None]


def test_current_task_after_a_stop_between_steps(loop):
    """A task's step ran last. That task must not be the current one when this loop or another one runs again."""

    async def main():
        loop.stop()
        await asyncio.sleep(0)
        return asyncio.current_task()

    task = loop.create_task(main())
    loop.run_forever()
    assert asyncio.current_task(loop) is None
    assert loop.run_until_complete(task) is task


def test_current_task_for_callbacks_that_tasks_call_directly(loop):
    seen = []

    async def main():
        loop.call_exception_handler({"message": "from within a task"})

    loop.set_exception_handler(lambda loop, context: seen.append(asyncio.current_task()))
    task = loop.create_task(main())
    loop.run_until_complete(task)
    assert seen == [task]


def test_all_tasks(loop):
    future = loop.create_future()
    tasks = {loop.create_task(waiting(future)) for _ in range(5)}
    assert asyncio.all_tasks(loop) == tasks
    run_once(loop)
    assert asyncio.all_tasks(loop) == tasks

    async def main():
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert loop.run_until_complete(main()) == tasks
    future.set_result(None)
    run_once(loop, 2)
    assert asyncio.all_tasks(loop) == set()


def test_all_tasks_while_tasks_come_and_go(loop):
    async def short(turns):
        for _ in range(turns):
            await asyncio.sleep(0)

    async def main():
        for number in range(50):
            group = [loop.create_task(short(turns)) for turns in range(number % 7)]
            expected = {task for task in group if not task.done()} | {asyncio.current_task()}
            assert asyncio.all_tasks() == expected
            await asyncio.gather(*group)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    loop.run_until_complete(main())


def test_all_tasks_is_per_loop(impl, loop):
    other = impl.new_event_loop()
    here, there = loop.create_task(asyncio.sleep(0)), other.create_task(asyncio.sleep(0))
    assert asyncio.all_tasks(loop) == {here}
    assert asyncio.all_tasks(other) == {there}
    run_once(loop, 2)
    run_once(other, 2)
    assert asyncio.all_tasks(loop) == asyncio.all_tasks(other) == set()
    other.close()


def test_all_tasks_of_a_loop_in_another_thread(impl):
    started, finish = threading.Event(), threading.Event()
    loops = []

    async def main():
        loops.append(asyncio.get_running_loop())
        children = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(10)]
        await asyncio.sleep(0)
        started.set()
        await asyncio.to_thread(finish.wait)
        for child in children:
            child.cancel()

    thread = threading.Thread(target=impl.run, args=(main(),))
    thread.start()
    started.wait()
    tasks = asyncio.all_tasks(loops[0])
    assert len(tasks) == 11
    assert all(not task.done() for task in tasks)
    del tasks
    finish.set()
    thread.join()


def test_all_tasks_sees_asyncios_tasks_too(impl, loop):
    ours, theirs = impl.Task(asyncio.sleep(0), loop=loop), asyncio.Task(asyncio.sleep(0), loop=loop)
    assert asyncio.all_tasks(loop) == {ours, theirs}
    run_once(loop, 3)


def test_all_tasks_does_not_keep_tasks_alive(loop, asyncio_log):
    async def never_awaited():
        await loop.create_future()

    loop.create_task(never_awaited())
    run_once(loop)
    import gc

    gc.collect()
    assert asyncio.all_tasks(loop) == set()
    (message,) = asyncio_log.take()
    assert message.startswith("Task was destroyed but it is pending!")


def test_repr(loop):
    future = loop.create_future()
    line = waiting.__code__.co_firstlineno
    task = loop.create_task(waiting(future), name="mine")
    assert repr(task) == f"<Task pending name='mine' coro=<waiting() running at {__file__}:{line}>>"
    run_once(loop)
    assert repr(task).startswith(
        f"<Task pending name='mine' coro=<waiting() running at {__file__}:{line + 1}> wait_for=<Future"
    )
    task.add_done_callback(print)
    assert "cb=[" in repr(task)
    task.remove_done_callback(print)
    task.cancel()
    assert "cancelling" in repr(task)
    run_once(loop, 2)
    assert repr(task) == f"<Task cancelled name='mine' coro=<waiting() done, defined at {__file__}:{line}>>"
    finished = loop.create_task(asyncio.sleep(0, "value"))
    loop.run_until_complete(finished)
    assert "Task finished name=" in repr(finished) and "result='value'" in repr(finished)


def test_repr_equals_asyncios(impl, loop):
    def rendered(task_class):
        future = loop.create_future()
        task = task_class(waiting(future), loop=loop, name="same")
        texts = [repr(task)]
        run_once(loop)
        texts.append(repr(task).replace(repr(future), "FUTURE"))
        future.cancel()
        run_once(loop, 2)
        texts.append(repr(task))
        return [text.split("cb=[")[0].split("wait_for=")[0] for text in texts]

    assert rendered(impl.Task) == rendered(asyncio.Task)


def test_repr_in_debug_mode_says_where_it_was_created(loop):
    loop.set_debug(True)
    task = loop.create_task(asyncio.sleep(0))
    assert f"created at {__file__}:{sys._getframe().f_lineno - 1}" in repr(task)
    frame = task._source_traceback[-1]
    assert frame[0] == __file__
    loop.slow_callback_duration = 3600
    run_once(loop, 2)


def test_get_stack_of_a_waiting_task(loop):
    async def inner():
        await loop.create_future()

    async def outer():
        await inner()

    task = loop.create_task(outer())
    run_once(loop)
    frames = task.get_stack()
    assert [frame.f_code.co_name for frame in frames] == ["outer"]  # a suspended coroutine shows its own frame only
    assert len(task.get_stack(limit=1)) == 1
    task.cancel()
    run_once(loop, 2)
    assert task.get_stack() == []


def test_get_stack_of_the_running_task(loop):
    async def main():
        return [frame.f_code.co_name for frame in asyncio.current_task().get_stack()]

    assert loop.run_until_complete(main())[-1] == "main"


def test_get_stack_of_a_failed_task_is_its_traceback(loop):
    def deeper():
        raise ZeroDivisionError

    async def main():
        deeper()

    task = loop.create_task(main())
    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(task)
    assert [frame.f_code.co_name for frame in task.get_stack()][-2:] == ["main", "deeper"]
    assert len(task.get_stack(limit=1)) == 1


def test_get_coro_of_a_subclass_with_an_attribute_of_that_name(impl, loop):
    class Named(impl.Task):
        _coro = None

    async def nothing():
        pass

    coroutine = nothing()
    task = Named(coroutine, loop=loop)
    assert task.get_coro() is coroutine
    loop.run_until_complete(task)


def test_print_stack(loop):
    future = loop.create_future()
    task = loop.create_task(waiting(future), name="mine")
    run_once(loop)
    file = io.StringIO()
    task.print_stack(file=file)
    assert file.getvalue().startswith("Stack for <Task pending name='mine'")
    assert "await future" in file.getvalue()
    future.set_result(None)
    loop.run_until_complete(task)
    file = io.StringIO()
    task.print_stack(limit=1, file=file)
    assert file.getvalue().startswith("No stack for <Task finished")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio.capture_call_graph() came with CPython 3.14")
def test_the_call_graph_shows_which_task_awaits_which(loop):
    graphs = {}

    async def inner():
        graphs["inner"] = asyncio.capture_call_graph()
        await asyncio.sleep(0)

    async def middle():
        await asyncio.create_task(inner(), name="inner task")

    async def outer():
        async with asyncio.TaskGroup() as group:
            group.create_task(middle(), name="middle task")

    loop.run_until_complete(loop.create_task(outer(), name="outer task"))
    graph = graphs["inner"]
    names = []
    while True:
        names.append(graph.future.get_name())
        if not graph.awaited_by:
            break
        (graph,) = graph.awaited_by
    assert names == ["inner task", "middle task", "outer task"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio.capture_call_graph() came with CPython 3.14")
def test_the_call_graph_shows_the_task_of_a_group_of_anyio(loop):
    found = []

    async def child():
        await anyio.lowlevel.checkpoint()
        graph = asyncio.capture_call_graph()
        found.append([waiter.future for waiter in graph.awaited_by])

    async def parent():
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await group.start(child_that_starts)

    async def child_that_starts(task_status):
        task_status.started()
        await child()

    task = loop.create_task(parent())
    loop.run_until_complete(task)
    assert found == [[task], [task]]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio.capture_call_graph() came with CPython 3.14")
def test_the_call_graph_shows_the_task_of_a_group_like_that_of_aiotools(loop):
    class Scope:
        def __init__(self):
            self._host_task = asyncio.current_task()
            self.ended = loop.create_future()

        def create_task(self, coroutine):
            task = asyncio.create_task(coroutine)
            asyncio.future_add_to_awaited_by(task, self._host_task)
            task.add_done_callback(self.on_task_done)
            return task

        def on_task_done(self, task):
            asyncio.future_discard_from_awaited_by(task, self._host_task)
            self.ended.set_result(None)

    async def child():
        return [waiter.future for waiter in asyncio.capture_call_graph().awaited_by]

    async def parent():
        scope = Scope()
        task = scope.create_task(child())
        await scope.ended
        assert asyncio.capture_call_graph(task).awaited_by == ()
        return task.result()

    task = loop.create_task(parent())
    assert loop.run_until_complete(task) == [task]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio.capture_call_graph() came with CPython 3.14")
def test_the_call_graph_forgets_former_waiters(loop):
    async def main():
        future = loop.create_future()
        waiter = loop.create_task(waiting(asyncio.shield(future)))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        future.set_result(None)
        assert asyncio.capture_call_graph(future).awaited_by == ()

    loop.run_until_complete(main())


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio.print_call_graph() came with CPython 3.14")
def test_the_call_graph_is_printed(loop):
    file = io.StringIO()

    async def inner():
        asyncio.print_call_graph(file=file)

    async def outer():
        await asyncio.create_task(inner(), name="inner task")

    loop.run_until_complete(loop.create_task(outer(), name="outer task"))
    text = file.getvalue()
    assert "inner task" in text and "outer task" in text and "inner()" in text


@pytest.mark.only("c", "python", reason="asyncio's compiled task refuses it; greenback then writes into the object")
def test_another_coroutine_in_the_place_of_a_tasks(impl, loop):
    steps = []

    async def original():
        steps.append("original")
        await asyncio.sleep(0)
        return "result"

    async def in_front(coroutine):
        steps.append("in front")
        return await coroutine

    async def main():
        task = impl.Task(original(), loop=loop)
        task._coro = in_front(task.get_coro())
        assert task.get_coro().__name__ == "in_front"
        return await task

    assert loop.run_until_complete(main()) == "result"
    assert steps == ["in front", "original"]
