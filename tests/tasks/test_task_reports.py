"""The reports about tasks that failed unseen or were dropped unfinished."""

import asyncio
import contextvars
import gc
import sys

import pytest
from support.interpreter import counts_references
from support.stepping import run_once


@pytest.fixture
def contexts(loop):
    collected = []
    loop.set_exception_handler(lambda loop, context: collected.append(context))
    yield collected
    collected.clear()  # a report holds its task
    gc.collect()


def test_an_unretrieved_exception_is_reported(loop, contexts):
    async def main():
        raise ZeroDivisionError("unseen")

    loop.create_task(main(), name="failed")
    run_once(loop)
    gc.collect()
    (context,) = contexts
    assert context["message"] == "Task exception was never retrieved"
    assert str(context["exception"]) == "unseen"
    assert context["future"].get_name() == "failed"


def test_an_exception_that_was_awaited_is_not_reported(loop, contexts):
    async def inner():
        raise ZeroDivisionError

    async def main():
        with pytest.raises(ZeroDivisionError):
            await loop.create_task(inner())

    loop.run_until_complete(main())
    gc.collect()
    assert contexts == []


def test_a_pending_task_that_is_dropped_is_reported(loop, contexts):
    async def main():
        await loop.create_future()

    loop.create_task(main(), name="dropped")
    run_once(loop)
    gc.collect()
    (context,) = contexts
    assert context["message"] == "Task was destroyed but it is pending!"
    assert context["task"].get_name() == "dropped"
    assert "source_traceback" not in context


def test_the_report_has_the_source_in_debug_mode(loop, contexts):
    async def main():
        await loop.create_future()

    loop.set_debug(True)
    loop.slow_callback_duration = 3600
    loop.create_task(main())
    run_once(loop)
    gc.collect()
    assert contexts[0]["source_traceback"][-1][0] == __file__


def test_the_report_can_be_switched_off(loop, contexts):
    async def main():
        await loop.create_future()

    task = loop.create_task(main())
    assert task._log_destroy_pending is True
    task._log_destroy_pending = False
    run_once(loop)
    del task
    gc.collect()
    assert contexts == []


def test_a_task_kept_alive_by_what_it_waits_for_is_not_dropped(loop, contexts):
    future = loop.create_future()

    async def main():
        await future

    loop.create_task(main())
    run_once(loop)
    gc.collect()
    assert contexts == []
    future.set_result(None)
    run_once(loop, 2)


def test_a_task_kept_alive_by_its_timer_is_not_dropped(loop, contexts):
    seen = []

    async def main():
        await asyncio.sleep(0.001)
        seen.append("woke")

    loop.create_task(main())
    run_once(loop)
    gc.collect()
    while not seen:
        run_once(loop)
    assert contexts == []


def test_a_task_kept_alive_by_the_ready_queue_is_not_dropped(loop, contexts):
    seen = []

    async def main():
        await asyncio.sleep(0)
        seen.append("ran")

    loop.create_task(main())
    gc.collect()
    run_once(loop)
    gc.collect()
    run_once(loop)
    assert seen == ["ran"] and contexts == []


def test_a_coroutine_that_was_refused_is_not_reported_as_a_task(impl, loop, contexts):
    with pytest.raises(TypeError):
        impl.Task("no coroutine", loop=loop)
    gc.collect()
    assert contexts == []


def test_the_default_report_goes_to_the_log(loop, asyncio_log):
    async def main():
        raise ZeroDivisionError("unseen")

    loop.create_task(main())
    run_once(loop)
    gc.collect()
    (message,) = asyncio_log.take()
    assert message.startswith("Task exception was never retrieved")
    assert "ZeroDivisionError: unseen" in message


def test_run_until_complete_sees_the_exception_itself(loop, contexts):
    async def main():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(main())
    gc.collect()
    assert contexts == []


def test_run_until_complete_interrupted_takes_its_task_along_quietly(loop, contexts):
    async def main():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    gc.collect()
    assert contexts == []


@counts_references
def test_a_task_that_the_report_brings_back_is_among_all_tasks(impl, loop):
    async def main():
        await future

    kept = []
    loop.set_exception_handler(lambda loop, context: kept.append(context["task"]))
    future = loop.create_future()
    task = impl.Task(main(), loop=loop)
    # The queued step is the loop's reference to the task.
    loop._ready.clear()
    del task
    assert len(kept) == 1
    assert asyncio.all_tasks(loop) == set(kept)
    kept[0]._log_destroy_pending = False
    kept[0].get_coro().close()
    kept.clear()
    assert asyncio.all_tasks(loop) == set()
    future.cancel()


@counts_references
def test_a_task_that_a_report_has_looked_at_is_gone(impl, loop):
    async def main():
        pass

    listed = []
    loop.set_exception_handler(lambda loop, context: listed.append(len(asyncio.all_tasks(loop))))
    coroutine = main()
    task = impl.Task(coroutine, loop=loop)
    loop._ready.clear()
    del task
    assert len(listed) == 1
    assert asyncio.all_tasks(loop) == set()
    coroutine.close()


@counts_references
@pytest.mark.only("c", "asyncio", reason="on every version tasks in Python are known by weak references")
def test_garbage_that_the_report_brings_back_is_among_all_tasks_since_3_14(impl, loop):
    async def main():
        await asyncio.get_running_loop().create_future()

    kept = []
    loop.set_exception_handler(lambda loop, context: kept.append(context["task"]))
    task = impl.Task(main(), loop=loop)
    run_once(loop)
    del task
    gc.collect()
    assert len(kept) == 1
    assert asyncio.all_tasks(loop) == (set(kept) if sys.version_info >= (3, 14) else set())
    kept[0]._log_destroy_pending = False
    kept.clear()
    gc.collect()
    assert asyncio.all_tasks(loop) == set()


def test_a_task_whose_context_is_entered_elsewhere_is_not_the_current_one(loop, monkeypatch):
    """Its step fails before it begins, so whoever reports that finds no task, not even the one that ran before."""
    context = contextvars.copy_context()
    seen = []

    def report(about):
        if "exception" in about:
            seen.append((type(about["exception"]), asyncio.current_task(loop)))

    async def nothing():
        pass

    # Not set_exception_handler(): since 3.12 a handler is called in the task's context, which refuses it.
    monkeypatch.setattr(loop, "call_exception_handler", report)
    before = loop.create_task(asyncio.sleep(0))
    task = loop.create_task(nothing(), context=context)
    context.run(run_once, loop)
    loop.run_until_complete(before)
    assert seen == [(RuntimeError, None)]
    assert not task.done()
    task._log_destroy_pending = False
    task.get_coro().close()
    del task
    gc.collect()  # the exception's frames hold the handle, and that the task
