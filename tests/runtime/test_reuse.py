"""Unreferenced futures, tasks, handles and contexts may be reused, but nothing of their former use shows."""

import asyncio
import contextvars
import gc
import os
import sysconfig
import weakref

import pytest
from support.garbage import without_collector
from support.stepping import run_once, run_until

variable = contextvars.ContextVar("variable", default="unset")
AGAIN = range(3)


class Value:
    """A weakly referenceable object."""


class Failure(Exception):
    pass


async def returning(value=None):
    return value


async def waiting(future):
    await future


@pytest.fixture
def reports(loop):
    """The messages that the loop's exception handler gets."""
    messages = []
    loop.set_exception_handler(lambda _, context: messages.append(context["message"]))
    yield messages
    loop.set_exception_handler(None)


def test_an_unretrieved_exception_is_reported_after_futures_without_a_report(loop, reports):
    for turn in AGAIN:
        seen = loop.create_future()
        seen.set_result(None)
        del seen
        future = loop.create_future()
        future.set_exception(Failure())
        del future
        gc.collect()
        assert reports == ["Future exception was never retrieved"] * (turn + 1)


def test_an_unretrieved_exception_of_a_task_is_reported_after_tasks_without_a_report(loop, reports):
    async def failing():
        raise Failure

    for turn in AGAIN:
        loop.run_until_complete(returning())
        task = loop.create_task(failing())
        run_once(loop)
        assert task.done()
        del task
        gc.collect()
        assert reports == ["Task exception was never retrieved"] * (turn + 1)


def test_a_task_that_is_dropped_while_it_waits_is_reported_each_time(loop, reports):
    for turn in AGAIN:
        loop.run_until_complete(returning())
        loop.create_task(waiting(loop.create_future()))
        run_once(loop)
        gc.collect()
        assert reports == ["Task was destroyed but it is pending!"] * (turn + 1)


def test_a_finalizer_that_the_garbage_collector_has_called_is_called_for_the_next_in_its_place(loop, reports):
    for turn in AGAIN:
        future = loop.create_future()
        future.set_result(future)  # a cycle that only the collector finds
        del future
        gc.collect()
        future = loop.create_future()
        future.set_exception(Failure())
        del future
        gc.collect()
        assert len(reports) == turn + 1


def test_a_new_future_has_nothing_of_a_former_one(loop):
    former = loop.create_future()
    former.add_done_callback(print)
    former.remove_done_callback(print)
    former.cancel("why")
    former.attribute = 1
    with pytest.raises(asyncio.CancelledError):
        former.result()
    del former
    future = loop.create_future()
    assert not future.done()
    assert not future.cancelled()
    assert future._cancel_message is None
    assert future._callbacks is None
    assert future.get_loop() is loop
    assert not hasattr(future, "attribute")
    future.set_result(7)
    assert future.result() == 7
    assert future.exception() is None


def test_a_new_task_has_nothing_of_a_former_one(loop):
    former = loop.create_task(returning(), name="former")
    former.attribute = 1
    former.cancel("why")
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(former)
    assert former.cancelling() == 1
    del former
    task = loop.create_task(returning(5))
    assert task.get_name() != "former"
    assert task.cancelling() == 0
    assert not task.done()
    assert task._log_destroy_pending
    assert not hasattr(task, "attribute")
    assert loop.run_until_complete(task) == 5


@pytest.mark.parametrize("kind", ["future", "task"])
def test_results_do_not_outlive_their_futures(loop, kind):
    value = Value()
    reference = weakref.ref(value)
    if kind == "future":
        holder = loop.create_future()
        holder.set_result(value)
    else:
        holder = loop.create_task(returning(value))
        loop.run_until_complete(holder)
    del holder, value
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("kind", ["future", "task"])
def test_a_weak_reference_does_not_come_back_with_the_next_one(loop, kind):
    def make():
        return loop.create_future() if kind == "future" else loop.create_task(returning())

    first = make()
    if kind == "task":
        loop.run_until_complete(first)
    reference = weakref.ref(first)
    del first
    gc.collect()
    assert reference() is None
    second = make()
    assert reference() is None
    if kind == "task":
        loop.run_until_complete(second)


@pytest.mark.parametrize("kind", ["future", "task"])
def test_the_garbage_collector_knows_none_that_is_gone(loop, kind):
    """Tools that look for leaked tasks search gc.get_objects()."""

    def known():
        gc.collect()
        return sum(isinstance(item, asyncio.Future) for item in gc.get_objects())

    before = known()
    for _ in range(20):
        if kind == "future":
            loop.create_future().set_result(None)
        else:
            loop.run_until_complete(returning())
    assert known() == before


@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe", "call_later"])
def test_what_a_callback_sets_is_not_there_in_the_next_one(loop, method):
    seen = []

    def callback(value):
        seen.append(variable.get())
        variable.set(value)

    delay = (0,) if method == "call_later" else ()
    for value in AGAIN:
        getattr(loop, method)(*delay, callback, value)
        run_until(loop, lambda value=value: len(seen) > value)
    assert seen == ["unset"] * len(AGAIN)


def test_what_a_task_sets_is_not_there_in_the_next_one(loop):
    async def step(value):
        before = variable.get()
        token = variable.set(value)
        await asyncio.sleep(0)
        if value == 1:
            variable.reset(token)
        return before

    assert [loop.run_until_complete(step(value)) for value in AGAIN] == ["unset"] * len(AGAIN)


def test_what_a_done_callback_sets_is_not_there_in_the_next_one(loop):
    seen = []

    def callback(future):
        seen.append(variable.get())
        variable.set(future.result())

    for value in AGAIN:
        future = loop.create_future()
        future.add_done_callback(callback)
        future.set_result(value)
        run_once(loop)
    assert seen == ["unset"] * len(AGAIN)


def test_a_context_that_is_still_referenced_is_not_reused(loop, impl):
    if not hasattr(asyncio.Task, "get_context"):
        pytest.skip("tasks have get_context() since CPython 3.12")
    task = loop.create_task(returning())
    kept = task.get_context()
    loop.run_until_complete(task)
    del task
    kept.run(variable.set, "kept")
    seen = []
    for _ in AGAIN:
        loop.call_soon(lambda: seen.append(variable.get()))
        loop.call_soon(lambda: seen.append(contextvars.copy_context().get(variable)))
    run_once(loop)
    assert seen == ["unset", None] * len(AGAIN)
    assert kept[variable] == "kept"


def test_a_context_whose_task_was_garbage_is_whole(loop):
    """The collector clears its garbage piece by piece; meanwhile no piece may be in use again."""
    seen = []
    for _ in AGAIN:
        holders = [[] for _ in range(50)]
        for holder in holders:
            holder.append(loop.create_task(returning()))
            holder[0].holder = holder
        run_once(loop)
        del holder, holders
        gc.collect()
        for _ in range(100):
            loop.call_soon(lambda: seen.append(contextvars.copy_context().get(variable)))
        run_once(loop)
    assert seen == [None] * 100 * len(AGAIN)


def test_a_value_that_a_callback_has_set_goes_with_the_callback(loop):
    def callback():
        value = Value()
        variable.set(value)
        references.append(weakref.ref(value))

    references = []
    for _ in AGAIN:
        loop.call_soon(callback)
    run_once(loop)
    gc.collect()
    assert [reference() for reference in references] == [None] * len(AGAIN)


@pytest.mark.only("c", reason="the others' handles are Python objects")
@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED") == 1, reason="without the GIL nothing is reused")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="under AddressSanitizer nothing is reused")
def test_timers_do_not_count_towards_the_next_collection(loop):
    gc.collect()
    with without_collector():
        before = gc.get_count()[0]
        handles = [loop.call_later(1000, print) for _ in range(40_000)]
        assert gc.get_count()[0] - before < 1000
        for handle in handles:
            handle.cancel()
        handles.clear()
        del handle
        # Nor does their end make room for other objects that the collector does not count.
        assert gc.get_count()[0] >= before


def test_a_handle_that_a_finalizer_has_found_is_not_used_again(loop):
    """As tools that look for leaks find what the garbage collector knows."""

    class Callback:
        def __call__(self):
            pass

        def __del__(self):
            found.extend(each for each in gc.get_objects() if type(each) is kind)

    found, called = [], []
    kind = type(loop.call_soon(Callback()))
    run_once(loop)
    handles = [loop.call_soon(called.append, turn) for turn in AGAIN]
    assert not any(each is handle for each in found for handle in handles)
    for each in found:
        each.cancel()
    run_once(loop)
    assert called == [*AGAIN]
