"""Pictures of all tasks: names, states, what they wait for and where, on any event loop."""

import asyncio
import inspect
import sys
import threading

import anyio
import pytest

from hotloop import format_tasks
from hotloop._asyncio.awaited_by import awaited_by
from hotloop.instruments.chains import await_chain, describe_waiters


async def wait(future):
    return await future


async def outer(future):
    await wait(future)


def line_of(function, text):
    """The line of a function's source with `text` in it, as a traceback shows it."""
    lines, first = inspect.getsourcelines(function)
    [number] = [first + at for at, line in enumerate(lines) if text in line]
    return f'  File "{__file__}", line {number}, in {function.__qualname__}'


def picture(text):
    """The blocks of a picture: its headline, and the lines of each task by its name."""
    head, *blocks = text.rstrip("\n").split("\n\n")
    return head, {block.split("'")[1]: block.splitlines() for block in blocks}


async def finish(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_picture(impl):
    async def main():
        loop = asyncio.get_running_loop()
        asyncio.current_task().set_name("main")
        task = asyncio.create_task(outer(loop.create_future()), name="deep")
        await asyncio.sleep(0)
        fresh = asyncio.create_task(asyncio.sleep(0), name="fresh")
        head, blocks = picture(format_tasks(loop))
        here = "test_a_picture.<locals>.main"
        assert head == f"3 tasks of the event loop in thread {threading.current_thread().name!r}"
        assert list(blocks) == ["deep", "fresh", "main"]
        assert blocks["main"][0] == f"task 'main', {here}(), runs"
        assert any(line.endswith(f"in {here}") for line in blocks["main"])
        assert "hotloop/instruments" not in "".join(blocks["main"])
        assert blocks["deep"][0] == f"task 'deep', outer(), waits for a {impl.Future.__name__}"
        assert blocks["deep"][1:] == [line_of(outer, "await wait"), line_of(wait, "await future")]
        assert blocks["fresh"][0] == "task 'fresh', sleep(), ready to run"
        task.cancel()
        _, blocks = picture(format_tasks(loop))
        assert blocks["deep"][0].endswith("was asked to cancel")
        await finish(task, fresh)

    impl.run(main())


def test_order_of_names(impl):
    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(0), name=name) for name in ("Task-10", "Task-9", "1", "A task-2")]
        asyncio.current_task().set_name("main")
        _, blocks = picture(format_tasks(asyncio.get_running_loop()))
        assert list(blocks) == ["A task-2", "Task-9", "Task-10", "main", "1"]
        await finish(*tasks)

    impl.run(main())


def test_order_of_names_with_long_numbers(impl):
    """int() refuses more than 4300 digits."""

    async def main():
        many = "9" * 5000
        names = [f"{many}9", f"{many} 10", f"{many} 9", "007", "10", "0"]
        tasks = [asyncio.create_task(asyncio.sleep(0), name=name) for name in names]
        _, blocks = picture(format_tasks(asyncio.get_running_loop()))
        assert [name for name in blocks if name in names] == ["0", "007", "10", f"{many} 9", f"{many} 10", f"{many}9"]
        await finish(*tasks)

    impl.run(main())


@pytest.mark.parametrize("how", ["task", "gather", "wait", "group", "shield", "wait_for"])
def test_who_waits_for_whom(impl, how):
    async def parent(child):
        if how == "task":
            await child
        elif how == "gather":
            await asyncio.gather(child)
        elif how == "wait":
            await asyncio.wait([child])
        elif how == "shield":
            await asyncio.shield(child)
        elif how == "wait_for":
            await asyncio.wait_for(child, 3600)

    async def group(future, children):
        async with asyncio.TaskGroup() as tasks:
            children.append(tasks.create_task(wait(future), name="child"))

    async def main():
        loop = asyncio.get_running_loop()
        future, children = loop.create_future(), []
        if how == "group":
            waiting = asyncio.create_task(group(future, children), name="parent")
        else:
            children.append(asyncio.create_task(wait(future), name="child"))
            waiting = asyncio.create_task(parent(children[0]), name="parent")
        for _ in range(2):
            await asyncio.sleep(0)
        _, blocks = picture(format_tasks(loop))
        assert blocks["parent"][0].endswith("waits for task 'child'")
        assert blocks["child"][0].endswith(f"waits for a {impl.Future.__name__}; awaited by task 'parent'")
        [line] = describe_waiters(children[0])
        assert line.startswith(f"task 'parent', at {__file__}:")
        future.set_result(None)
        await waiting

    impl.run(main())


def test_many_children_are_counted(impl):
    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        children = [asyncio.create_task(wait(future), name=f"child {number}") for number in range(7)]
        parent = asyncio.create_task(wait(asyncio.gather(*children)), name="parent")
        await asyncio.sleep(0)
        _, blocks = picture(format_tasks(loop))
        named = ", ".join(f"task 'child {number}'" for number in range(5))
        assert blocks["parent"][0].endswith(f"waits for {named} and 2 more")
        future.set_result(None)
        await parent

    impl.run(main())


def test_a_chain_through_an_asynchronous_generator(impl):
    async def generate(future):
        yield await future

    async def main():
        future = asyncio.get_running_loop().create_future()

        async def consume():
            async for _ in generate(future):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        names = [place.name.rpartition(".")[2] for place in await_chain(task.get_coro())]
        assert names == ["consume", "generate"]
        future.set_result(None)
        await task

    impl.run(main())


def test_a_chain_through_other_awaitables(impl):
    class Awaitable:
        def __init__(self, future):
            self.future = future

        def __await__(self):
            return (yield from wait(self.future).__await__())

    async def main():
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(wait(Awaitable(future)))
        await asyncio.sleep(0)
        names = [place.name.rpartition(".")[2] for place in await_chain(task.get_coro())]
        assert names == ["wait", "__await__", "wait"]
        future.set_result(None)
        await task

    impl.run(main())


def test_a_socket_that_is_waited_for(impl, pair):
    async def receive(sock):
        return await asyncio.get_running_loop().sock_recv(sock, 1)

    async def main():
        task = asyncio.create_task(receive(pair[0]), name="receiver")
        await asyncio.sleep(0)
        _, blocks = picture(format_tasks(asyncio.get_running_loop()))
        assert any(line.endswith(".sock_recv") for line in blocks["receiver"])
        pair[1].send(b"x")
        assert await task == b"x"

    impl.run(main())


def test_a_cycle_of_waiters_ends(impl):
    """No task gets out of such a wait, but the picture must show the cycle."""

    async def wait_for(name):
        await asyncio.wait([tasks[name]])  # does not pass a cancellation on

    async def main():
        for name, other in ("first", "second"), ("second", "first"):
            tasks[name] = asyncio.create_task(wait_for(other), name=name)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for name, other in ("first", "second"), ("second", "first"):
            assert [line.partition(",")[0] for line in describe_waiters(tasks[name])] == [f"task '{other}'"]
        await finish(*tasks.values())

    tasks = {}
    impl.run(main())


def test_long_chains(impl):
    """The chain is longer than the recursion limit."""

    async def deep(levels, future):
        if levels:
            await deep(levels - 1, future)
        else:
            await future

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        first = task = asyncio.create_task(deep(300, future), name="first")
        for number in range(2000):
            task = asyncio.create_task(wait(task), name=f"level {number}")
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(await_chain(first.get_coro())) == 301
        lines = describe_waiters(first)
        assert lines[1].startswith("  task 'level 1', at ")
        assert 500 <= len(lines) <= 2000
        assert format_tasks(loop).startswith("2002 tasks")
        future.set_result(None)
        await task

    impl.run(main())


def test_a_loop_that_does_not_run(loop):
    async def nothing():
        pass

    assert format_tasks(loop) == f"0 tasks of {loop!r}\n"
    task = loop.create_task(nothing(), name="only")
    head, blocks = picture(format_tasks(loop))
    assert head == f"1 task of {loop!r}"
    assert blocks["only"][0].endswith("nothing(), ready to run")
    loop.run_until_complete(task)


def test_from_another_thread(impl):
    """While the loop is blocked: the other thread sees which code blocks it."""

    def look(loop, texts, blocked, seen):
        blocked.wait()
        texts.append(format_tasks(loop))
        seen.set()

    def block(blocked, seen):
        blocked.set()
        seen.wait()

    async def main(kind):
        loop = asyncio.get_running_loop()
        texts, blocked, seen = [], threading.Event(), threading.Event()
        thread = threading.Thread(target=look, args=[loop, texts, blocked, seen])
        thread.start()
        if kind == "task":
            block(blocked, seen)
        else:
            loop.call_soon(block, blocked, seen)
            while not texts:
                await asyncio.sleep(0)
        thread.join()
        return texts[0]

    text = impl.run(main("task"))
    assert "main(), runs" in text
    assert "in test_from_another_thread.<locals>.block" in text
    text = impl.run(main("callback"))
    assert "main(), ready to run" in text
    if not impl.is_oracle:
        assert "no task runs, but a callback:" in text
        assert "in test_from_another_thread.<locals>.block" in text


@pytest.mark.skipif(sys.version_info < (3, 14), reason="asyncio has call graphs since 3.14")
def test_waiters_are_those_of_the_call_graph(impl):
    async def main():
        future = asyncio.get_running_loop().create_future()
        child = asyncio.create_task(wait(future))
        parent = asyncio.create_task(wait(child))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        graph = asyncio.capture_call_graph(child)
        assert [waiter.future for waiter in graph.awaited_by] == [parent] == list(awaited_by(child))
        future.set_result(None)
        await parent

    impl.run(main())


def test_the_task_of_a_group_of_anyio_is_a_waiter(impl):
    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever, name="child")
            await anyio.lowlevel.checkpoint()
            (child,) = asyncio.all_tasks() - {asyncio.current_task()}
            assert awaited_by(child) == {asyncio.current_task()}
            group.cancel_scope.cancel()

    impl.run(main())
