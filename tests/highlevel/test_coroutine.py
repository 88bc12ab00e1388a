"""Compiled functions' coroutines, their attributes and lives: code sees what it sees of asyncio's own."""

import asyncio
import collections.abc
import contextlib
import gc
import inspect
import io
import sys
import types
import weakref

import pytest
from support.comparing import BOTH
from support.driven_coroutines import full_queue, outcome

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


# -- what it is --------------------------------------------------------------------------------------------------------


@pytest.fixture
def coroutine(aio):
    coroutine = aio.Queue().get()
    yield coroutine
    coroutine.close()


def test_kind(coroutine):
    assert inspect.iscoroutine(coroutine) and asyncio.iscoroutine(coroutine) and inspect.isawaitable(coroutine)
    assert isinstance(coroutine, types.CoroutineType)
    assert isinstance(coroutine, collections.abc.Coroutine) and isinstance(coroutine, collections.abc.Awaitable)
    assert not inspect.isgenerator(coroutine) and not inspect.isasyncgen(coroutine)
    assert not asyncio.isfuture(coroutine)
    assert coroutine.__class__ is types.CoroutineType


def test_only_coroutine_functions_make_them(coroutine):
    with pytest.raises(TypeError, match=r"^cannot create '.*' instances$"):
        type(coroutine)()
    with pytest.raises(TypeError):
        object.__new__(type(coroutine))
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Own", (type(coroutine),), {})


def test_names(coroutine):
    assert (coroutine.__name__, coroutine.__qualname__) == ("get", "Queue.get")
    assert repr(coroutine) == f"<coroutine object Queue.get at {id(coroutine):#x}>"
    coroutine.__name__, coroutine.__qualname__ = "one", "two"
    assert (coroutine.__name__, coroutine.__qualname__) == ("one", "two")
    assert repr(coroutine) == f"<coroutine object two at {id(coroutine):#x}>"
    for name in ("__name__", "__qualname__"):
        with pytest.raises(TypeError, match=f"^{name} must be set to a string object$"):
            setattr(coroutine, name, 1)
        with pytest.raises(TypeError, match=f"^{name} must be set to a string object$"):
            delattr(coroutine, name)
    assert (coroutine.__name__, coroutine.__qualname__) == ("one", "two")


@pytest.mark.parametrize("name", ["cr_await", "cr_code", "cr_frame", "cr_origin", "cr_running", "cr_suspended"])
def test_attributes_that_cannot_be_set(coroutine, name):
    with pytest.raises(AttributeError):
        setattr(coroutine, name, None)


def test_no_other_attributes_can_be_set(coroutine):
    with pytest.raises(AttributeError):
        coroutine.other = 1
    assert not hasattr(coroutine, "__dict__")


def test_attributes(loop, aio):
    own = asyncio.Queue.get.__code__

    async def main():
        queue = aio.Queue()
        coroutine = queue.get()
        assert coroutine.cr_code is own
        assert coroutine.cr_frame.f_code.co_name == "get" and coroutine.cr_frame.f_lineno == own.co_firstlineno
        assert coroutine.cr_frame.f_locals["self"] is queue
        waiter = coroutine.send(None)
        assert asyncio.isfuture(waiter)
        assert coroutine.cr_frame.f_lineno > own.co_firstlineno
        assert coroutine.cr_frame is coroutine.cr_frame
        if sys.version_info >= (3, 14):
            assert inspect.iscoroutine(coroutine.cr_frame.f_generator)
        assert coroutine.cr_frame.f_code.co_filename == asyncio.queues.__file__
        assert next(iter(queue._getters)) is waiter
        assert type(coroutine.cr_await) is type(waiter.__await__())
        coroutine.close()
        assert (coroutine.cr_frame, coroutine.cr_await, coroutine.cr_code) == (None, None, own)

    loop.run_until_complete(main())


def test_the_line_where_it_waits(loop):
    """Stacks show the line of asyncio's own `await`."""

    async def main():
        stacks = []
        for module in BOTH:
            tasks = [
                asyncio.create_task(each)
                for each in (module.Queue().get(), module.Event().wait(), full_queue(module).coroutine)
            ]
            await asyncio.sleep(0)
            for task in tasks:
                text = io.StringIO()
                task.print_stack(file=text)
                [frame] = task.get_stack()
                stacks.append((frame.f_code.co_filename, frame.f_lineno, text.getvalue().partition("\n")[2]))
                task.cancel()
        assert stacks[:3] == stacks[3:]

    loop.run_until_complete(main())


def test_task_reports(loop):
    """repr() of a task and of a handle name asyncio's function and its line."""

    async def main():
        found = []
        for module in BOTH:
            task = asyncio.create_task(module.Queue().get(), name="a task")
            reports = [repr(task)]
            await asyncio.sleep(0)
            reports.append(repr(task).partition(" wait_for=")[0])
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            found.append([*reports, repr(task)])
        assert found[0] == found[1]
        assert "coro=<Queue.get() " in found[1][0]

    loop.run_until_complete(main())


# -- what it keeps alive -----------------------------------------------------------------------------------------------


def test_weak_references(loop, aio):
    coroutine = aio.Queue().get()
    died = []
    reference = weakref.ref(coroutine, died.append)
    assert reference() is coroutine
    coroutine.close()
    del coroutine
    assert died == [reference]


@pytest.mark.parametrize("end", ["close", "send"])
def test_what_it_holds_is_released_at_its_end(loop, aio, end):
    if aio is asyncio and end == "close":
        pytest.skip("whether close() releases a coroutine's arguments before its first step depends on the Python")
    queue = aio.Queue()
    queue.put_nowait(1)
    reference = weakref.ref(queue)
    coroutine = queue.get()
    del queue
    assert reference() is not None
    outcome(getattr(coroutine, end), *[None] * (end == "send"))
    assert reference() is None


def test_collection_of_a_cycle(loop, aio):
    """A queue with a waiter whose callback holds the waiting coroutine."""

    class Queue(aio.Queue):
        pass

    async def main():
        queue = Queue()
        coroutine = queue.get()
        waiter = coroutine.send(None)
        waiter.add_done_callback(lambda _: coroutine)
        queue.held = coroutine
        return weakref.ref(queue), weakref.ref(coroutine)

    references = loop.run_until_complete(main())
    gc.collect()
    # Closing the coroutine has cancelled the waiter, whose callback is queued now and keeps the coroutine alive.
    loop.run_until_complete(asyncio.sleep(0))
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_dropped_while_it_waits(loop, aio):
    """Dropping the coroutine closes it: its waiter is no longer among the queue's."""

    async def main():
        queue = aio.Queue()
        coroutine = queue.get()
        coroutine.send(None)
        assert len(queue._getters) == 1
        del coroutine
        assert len(queue._getters) == 0

    loop.run_until_complete(main())


def test_recycled_objects_start_anew(loop, aio):
    """A coroutine that reuses an earlier one's memory has its own names and begins at its start."""
    for _ in range(3):
        coroutine = aio.Queue().get()
        coroutine.__name__ = coroutine.__qualname__ = "named"
        coroutine.close()
        del coroutine
        coroutine = aio.Queue().get()
        assert (coroutine.__name__, coroutine.__qualname__) == ("get", "Queue.get")
        assert inspect.getcoroutinestate(coroutine) == "CORO_CREATED" and coroutine.cr_origin is None
        coroutine.close()


def test_state(loop, aio):
    """`cr_state` came with Python 3.15, where inspect.getcoroutinestate() asks for it."""

    async def main():
        queue = aio.Queue()
        coroutine = queue.get()
        states = [inspect.getcoroutinestate(coroutine)]
        coroutine.send(None)
        states.append(inspect.getcoroutinestate(coroutine))
        coroutine.close()
        return [*states, inspect.getcoroutinestate(coroutine)], hasattr(coroutine, "cr_state")

    states, has_attribute = loop.run_until_complete(main())
    assert states == ["CORO_CREATED", "CORO_SUSPENDED", "CORO_CLOSED"]
    assert has_attribute == (sys.version_info >= (3, 15))
