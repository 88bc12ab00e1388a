"""Awaiting a compiled function's coroutine, in tasks of every kind: it behaves as asyncio's own."""

import asyncio
import collections.abc
import contextlib
import sys
import types
import weakref

import pytest
from support.comparing import BOTH

import hotloop
import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


def test_awaiting_one_that_is_awaited(loop, aio):
    async def main():
        coroutine = aio.Queue().get()
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=r"^coroutine is being awaited already$"):
            await coroutine
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(RuntimeError, match=r"^cannot reuse already awaited coroutine$"):
            await coroutine

    loop.run_until_complete(main())


def test_yield_from_in_a_generator_that_is_a_coroutine(loop, aio):
    queue = aio.Queue()

    @types.coroutine
    def get():
        return (yield from queue.get())

    async def main():
        loop.call_soon(queue.put_nowait, "item")
        return await get()

    assert loop.run_until_complete(main()) == "item"


def test_yield_from_in_an_iterator(loop, aio):
    """A program's `__await__` may delegate to a coroutine's."""
    queue = aio.Queue()

    class Getting:
        def __await__(self):
            return (yield from queue.get().__await__())

    async def main():
        loop.call_soon(queue.put_nowait, "item")
        return await Getting()

    assert loop.run_until_complete(main()) == "item"


def test_iteration_is_refused(aio):
    coroutine = aio.Queue().get()
    with contextlib.closing(coroutine):
        with pytest.raises(TypeError, match="'coroutine' object is not iterable"):
            iter(coroutine)
        with pytest.raises(TypeError, match="cannot 'yield from' a coroutine object in a non-coroutine generator"):
            next(generator(coroutine))
    assert not isinstance(coroutine, collections.abc.Iterable | collections.abc.Iterator)
    assert not hasattr(coroutine, "__iter__") and not hasattr(coroutine, "__next__")


def generator(coroutine):
    yield from coroutine


def test_driven_as_an_iterator(loop, aio):
    async def main():
        queue = aio.Queue()
        iterator = queue.get().__await__()
        assert iter(iterator) is iterator and isinstance(iterator, collections.abc.Generator)
        assert asyncio.isfuture(next(iterator))
        queue.put_nowait(1)
        with pytest.raises(StopIteration) as stopped:
            iterator.send(None)
        assert stopped.value.value == 1
        iterator = queue.get().__await__()
        with pytest.raises(ValueError, match="thrown"):
            iterator.throw(ValueError("thrown"))
        iterator = queue.get().__await__()
        next(iterator)
        assert iterator.close() is None
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            next(iterator)

    loop.run_until_complete(main())


def test_values_that_are_special_to_generators(loop, aio):
    """A result that is a tuple or an exception is returned as it is."""

    async def main():
        queue = aio.Queue()
        items = [(1, 2), (), StopIteration(3), ValueError("no error"), ValueError, None]
        for item in items:
            queue.put_nowait(item)
        for item in items:
            assert await queue.get() is item

    loop.run_until_complete(main())


def test_results_are_freed_as_early_as_asyncios(loop):
    """However its coroutine is awaited, a result is not held any longer than the program holds it."""

    class Item:
        def __init__(self, name, log):
            self.name = name
            self.log = log

        def __del__(self):
            self.log.append(f"{self.name} freed")

    @types.coroutine
    def delegating(coroutine):
        return (yield from coroutine)

    async def main(module):
        log = []
        queue = module.Queue()

        def get(name):
            queue.put_nowait(Item(name, log))
            return queue.get()

        await get("awaited")
        log.append("awaited")
        coroutine = get("in a variable")
        await coroutine
        log.append("in a variable")
        coroutine = get("with a weak reference")
        reference = weakref.ref(coroutine)
        await coroutine
        log.append("with a weak reference")
        del coroutine
        assert reference() is None
        item = await get("kept")
        await get("the next")
        log.append("kept")
        del item
        await delegating(get("delegated"))
        log.append("delegated")
        try:
            raise ValueError
        except ValueError:
            await get("in an except clause")
            log.append("in an except clause")
        many = [queue.get() for _ in range(3_000)]
        for each in many:
            each.close()
        del many, each
        await get("with full lists")
        log.append("with full lists")
        await asyncio.gather(get("in a task"), get("in another"))
        log.append("in tasks")
        async with module.Lock():
            await get("with a lock")
            log.append("with a lock")
        return log

    own, compiled = (loop.run_until_complete(main(module)) for module in BOTH)
    assert own == compiled


def test_exceptions_that_a_trace_function_keeps(loop):
    """`await` gets a result as a StopIteration, which a trace function may see: it stays as it is."""
    kept = []

    def trace(frame, event, argument):
        if event == "exception" and isinstance(argument[1], StopIteration):
            kept.append(argument[1])
        return trace

    async def main():
        queue = hotloop.asyncio.Queue()
        found = []
        for number in range(4):
            queue.put_nowait([number])
            found.append(await queue.get())
        async with hotloop.asyncio.Lock():
            await hotloop.asyncio.Lock().acquire()
        return found

    task = main()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = loop.run_until_complete(task)
    finally:
        sys.settrace(before)
    assert loop.run_until_complete(main()) == found == [[number] for number in range(4)]
    kept = [(error.value, error.args) for error in kept if isinstance(error.value, list)]
    # Not every version shows it to the function.
    assert kept in ([], [(result, (result,)) for result in found])


def test_future_that_is_its_own_iterator(loop, aio, monkeypatch):
    class Iterated(hotloop.Future):
        def __await__(self):
            return self

        def __next__(self):
            raise StopIteration

    async def main():
        lock = aio.Lock()
        await lock.acquire()
        monkeypatch.setattr(loop, "create_future", lambda: Iterated(loop=loop))
        with pytest.raises(StopIteration) as stopped:
            lock.acquire().send(None)
        return stopped.value.value

    assert loop.run_until_complete(main()) is True


@pytest.mark.parametrize("kind", ["asyncio.Task", "hotloop.Task", "_PyTask"])
def test_tasks_of_every_kind(loop, aio, kind):
    make = {"asyncio.Task": asyncio.Task, "hotloop.Task": hotloop.Task, "_PyTask": asyncio.tasks._PyTask}[kind]

    async def main():
        queue = aio.Queue()
        tasks = [make(queue.get(), loop=loop) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        queue.put_nowait(1)
        queue.put_nowait(2)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert done[::2] == [1, 2] and isinstance(done[1], asyncio.CancelledError)
        assert tasks[0].get_coro().__name__ == "get"

    if kind == "_PyTask" and sys.version_info >= (3, 14):
        pytest.skip("its tasks are unknown to the C functions that find the current one")
    loop.run_until_complete(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks(loop, aio):
    async def main():
        queue = aio.Queue()
        queue.put_nowait(1)
        task = asyncio.create_task(queue.get())
        assert task.done() and task.result() == 1
        task = asyncio.create_task(queue.get())
        assert not task.done()
        queue.put_nowait(2)
        assert await task == 2
        failing = asyncio.create_task(queue.join())
        assert not failing.done()
        failing.cancel()

    loop.set_task_factory(asyncio.eager_task_factory)
    loop.run_until_complete(main())
