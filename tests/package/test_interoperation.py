"""P22: asyncio's helpers over any mix of hotloop's and asyncio's own futures and tasks."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import threading

import pytest
from support.stepping import run_once

pytestmark = pytest.mark.promise("P22")

mixed = pytest.mark.parametrize("classes", ["own", "asyncio", "mixed"])


class Maker:
    """Makes futures and tasks of one kind, or of both in turn."""

    def __init__(self, impl, loop, classes):
        self.loop = loop
        kinds = {"own": [impl], "asyncio": [asyncio], "mixed": [impl, asyncio]}[classes]
        self.kinds = itertools.cycle(kinds)

    def future(self):
        return next(self.kinds).Future(loop=self.loop)

    def task(self, coroutine):
        return next(self.kinds).Task(coroutine, loop=self.loop)


@pytest.fixture
def make(impl, loop, classes):
    return Maker(impl, loop, classes)


async def after(turns, result=None, error=None):
    for _ in range(turns):
        await asyncio.sleep(0)
    if error is not None:
        raise error
    return result


def run_on(loop, main, task_class):
    """Run `main()` in a task of that class: the awaiting task is part of the mix, like the awaited objects."""
    return loop.run_until_complete(task_class(main(), loop=loop))


@pytest.fixture(params=["own", "asyncio"], ids=["in our task", "in asyncio's task"])
def run(request, impl, loop):
    task_class = impl.Task if request.param == "own" else asyncio.Task
    return lambda main: run_on(loop, main, task_class)


@mixed
def test_await(make, run):
    async def main():
        future = make.future()
        make.loop.call_soon(future.set_result, "future's")
        failing = make.task(after(2, error=ZeroDivisionError("task's")))
        assert await future == "future's"
        assert await make.task(after(2, "task's")) == "task's"
        with pytest.raises(ZeroDivisionError, match="task's"):
            await failing
        cancelled = make.future()
        cancelled.cancel("why")
        with pytest.raises(asyncio.CancelledError, match="why"):
            await cancelled

    run(main)


@mixed
def test_cancelling_the_waiter_cancels_what_it_awaits(make, run):
    async def main():
        future = make.future()

        async def waiter():
            await future

        task = make.task(waiter())
        outer = make.task(asyncio.wait_for(task, 3600))
        await after(3)
        outer.cancel("from outside")
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert future.cancelled() and task.cancelled()

    run(main)


@mixed
def test_gather(make, run):
    async def main():
        assert await asyncio.gather(*(make.task(after(number, number)) for number in range(6))) == list(range(6))
        future = make.future()
        future.set_result("future's")
        results = await asyncio.gather(
            future, after(1, "coroutine's"), make.task(after(1, error=ZeroDivisionError())), return_exceptions=True
        )
        assert results[:2] == ["future's", "coroutine's"] and type(results[2]) is ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(make.task(after(1)), make.task(after(2, error=ZeroDivisionError())))
        same = make.task(after(1, "same"))
        assert await asyncio.gather(same, same) == ["same", "same"]

    run(main)


@mixed
def test_gather_cancelled(make, run):
    async def main():
        children = [make.future() for _ in range(4)]
        gathering = asyncio.gather(*children)
        await after(1)
        gathering.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await gathering
        assert all(child.cancelled() for child in children)

    run(main)


@mixed
def test_wait(make, run):
    async def main():
        tasks = [make.task(after(number, number)) for number in range(1, 6)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert tasks[0] in done and done | pending == set(tasks)
        done, pending = await asyncio.wait(tasks)
        assert done == set(tasks) and not pending
        failing = [make.task(after(1, error=ZeroDivisionError())), make.task(after(1000))]
        done, pending = await asyncio.wait(failing, return_when=asyncio.FIRST_EXCEPTION)
        assert done == {failing[0]} and type(failing[0].exception()) is ZeroDivisionError
        done, pending = await asyncio.wait([make.future()], timeout=0.001)
        assert not done and len(pending) == 1
        await failing[1]

    run(main)


@mixed
def test_as_completed(make, run):
    async def main():
        results = [await earliest for earliest in asyncio.as_completed([make.task(after(n, n)) for n in (7, 1, 4)])]
        assert results == [1, 4, 7]

    run(main)


@mixed
def test_shield(make, run):
    async def main():
        inner = make.task(after(3, "survived"))
        outer = asyncio.shield(inner)
        await after(1)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert await inner == "survived"
        assert await asyncio.shield(make.task(after(1, "simply"))) == "simply"

    run(main)


@mixed
def test_wait_for(make, run):
    async def main():
        assert await asyncio.wait_for(make.task(after(2, "in time")), 3600) == "in time"
        late = make.future()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(late, 0.001)
        assert late.cancelled()
        done = make.future()
        done.set_result("done")
        assert await asyncio.wait_for(done, 0) == "done"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(make.future(), -1)

    run(main)


@mixed
def test_timeout(make, run):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await make.future()
        async with asyncio.timeout(3600):
            await make.task(after(2))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                async with asyncio.timeout(0.001):
                    await make.future()
        assert asyncio.current_task().cancelling() == 0

    run(main)


@mixed
def test_task_group(make, run):
    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(after(number, number)) for number in range(5)]
            group.create_task(awaiting(make.task(after(2))))
        assert [task.result() for task in tasks] == list(range(5))
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(awaiting(make.future()))
                group.create_task(awaiting(make.task(after(1, error=ZeroDivisionError()))))
        assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]

    async def awaiting(what):
        return await what

    run(main)


@mixed
def test_the_loops_factory_may_make_either(impl, loop, classes):
    tasks = {"own": [impl.Task], "asyncio": [asyncio.Task], "mixed": [impl.Task, asyncio.Task]}[classes]
    kinds = itertools.cycle(tasks)
    loop.set_task_factory(lambda loop, coroutine, **keywords: next(kinds)(coroutine, loop=loop, **keywords))

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(after(number, number), name=f"child {number}") for number in range(6)]
        return [task.result() for task in tasks], [task.get_name() for task in tasks]

    assert loop.run_until_complete(main()) == (list(range(6)), [f"child {number}" for number in range(6)])


@mixed
def test_all_tasks_and_current_task(make, run):
    async def main():
        async def itself():
            await asyncio.sleep(0)
            return asyncio.current_task()

        tasks = [make.task(itself()) for _ in range(4)]
        assert asyncio.all_tasks() == {*tasks, asyncio.current_task()}
        await after(1)
        assert asyncio.all_tasks() == {*tasks, asyncio.current_task()}
        for task in tasks:
            assert await task is task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main)


@mixed
def test_current_task_when_kinds_alternate(make, run):
    async def main():
        async def check():
            me = asyncio.current_task()
            for _ in range(20):
                await asyncio.sleep(0)
                assert asyncio.current_task() is me

        await asyncio.gather(*(make.task(check()) for _ in range(6)))

    run(main)


@mixed
def test_run_coroutine_threadsafe(make, run):
    async def work():
        return await make.task(after(2, "from another thread"))

    async def main():
        loop = asyncio.get_running_loop()

        def thread():
            return asyncio.run_coroutine_threadsafe(work(), loop).result()

        assert await asyncio.to_thread(thread) == "from another thread"

        def cancelling():
            future = asyncio.run_coroutine_threadsafe(awaiting(make.future()), loop)
            future.cancel()
            with pytest.raises(concurrent.futures.CancelledError):
                future.result()

        await asyncio.to_thread(cancelling)
        await after(5)

    async def awaiting(what):
        await what

    run(main)
    run_once(make.loop, 2)


@mixed
def test_wrap_future(make, run):
    async def main():
        for outcome in ("result", "exception", "cancelled"):
            theirs = concurrent.futures.Future()
            wrapped = asyncio.wrap_future(theirs)
            assert asyncio.wrap_future(wrapped) is wrapped
            assert asyncio.isfuture(wrapped)
            finish = {
                "result": lambda f=theirs: f.set_result("value"),
                "exception": lambda f=theirs: f.set_exception(ZeroDivisionError()),
                "cancelled": theirs.cancel,
            }[outcome]
            threading.Thread(target=finish).start()
            expected = {"exception": ZeroDivisionError, "cancelled": asyncio.CancelledError}.get(outcome)
            with pytest.raises(expected) if expected else contextlib.nullcontext():
                assert await wrapped == "value"
        dropped = concurrent.futures.Future()
        asyncio.wrap_future(dropped).cancel()
        await after(2)
        assert dropped.cancelled()

    run(main)


@mixed
def test_synchronisation(make, run):
    async def main():
        queue, event, lock = asyncio.Queue(1), asyncio.Event(), asyncio.Lock()
        seen = []

        async def producer():
            for number in range(5):
                async with lock:
                    await queue.put(number)
            event.set()

        async def consumer():
            while len(seen) < 5:
                seen.append(await queue.get())
                queue.task_done()

        tasks = [make.task(producer()), make.task(consumer())]
        await event.wait()
        await queue.join()
        await asyncio.gather(*tasks)
        assert seen == list(range(5))

    run(main)


@mixed
def test_run_until_complete(make, classes):
    assert make.loop.run_until_complete(make.task(after(2, "task's"))) == "task's"
    future = make.future()
    make.loop.call_soon(future.set_result, "future's")
    assert make.loop.run_until_complete(future) == "future's"


def test_our_tasks_and_futures_on_asyncios_loop(impl):
    """hotloop's Task and Future do not need hotloop's loop."""
    loop = asyncio.SelectorEventLoop()

    async def main():
        future = impl.Future()
        loop.call_soon(future.set_result, "future's")
        assert await future == "future's"
        tasks = [impl.Task(after(number, number)) for number in range(5)]
        assert asyncio.all_tasks() == {*tasks, asyncio.current_task()}
        assert await asyncio.gather(*tasks) == list(range(5))
        failing = impl.Task(after(1, error=ZeroDivisionError()))
        with pytest.raises(ZeroDivisionError):
            await failing
        cancelled = impl.Task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await impl.Task(after(1, "ours on theirs"))

    try:
        assert loop.run_until_complete(impl.Task(main(), loop=loop)) == "ours on theirs"
    finally:
        loop.close()


def test_a_duck_typed_future(impl, loop):
    """Any object with `_asyncio_future_blocking` and the methods can be awaited, whatever its class."""

    class Duck:
        _asyncio_future_blocking = False

        def __init__(self):
            self.callbacks = []

        def get_loop(self):
            return loop

        def add_done_callback(self, callback, *, context=None):
            self.callbacks.append((callback, context))

        def cancel(self, msg=None):
            return False

        def result(self):
            return "quack"

        def __await__(self):
            self._asyncio_future_blocking = True
            yield self
            return self.result()

        def finish(self):
            for callback, context in self.callbacks:
                loop.call_soon(callback, self, context=context)

    async def main():
        return await duck

    duck = Duck()
    loop.call_soon(loop.call_soon, duck.finish)
    assert loop.run_until_complete(impl.Task(main(), loop=loop)) == "quack"


def test_asyncios_python_classes_join_in(impl, loop):
    """A debugger may have replaced the C classes by asyncio's Python Future and Task."""

    async def main():
        future = asyncio.futures._PyFuture(loop=loop)
        loop.call_soon(future.set_result, "python future's")
        assert await future == "python future's"
        return await asyncio.gather(
            asyncio.tasks._PyTask(after(2, "a"), loop=loop), impl.Task(after(1, "b"), loop=loop)
        )

    assert loop.run_until_complete(impl.Task(main(), loop=loop)) == ["a", "b"]
