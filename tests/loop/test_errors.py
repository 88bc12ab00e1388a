"""Exceptions from callbacks: the exception handler, and the two exceptions that leave the loop."""

import asyncio
import contextvars
import itertools
import os
import sys

import pytest
from support.garbage import without_collector
from support.stepping import run_once


@pytest.fixture
def contexts(loop):
    collected = []
    loop.set_exception_handler(lambda loop, context: collected.append(context))
    yield collected
    collected.clear()


def fail(error=ZeroDivisionError):
    raise error


def test_a_failing_callback_is_reported_and_the_batch_goes_on(loop, contexts):
    seen = []
    handle = loop.call_soon(fail)
    loop.call_soon(seen.append, "after")
    run_once(loop)
    assert seen == ["after"]
    (context,) = contexts
    assert context["message"].startswith("Exception in callback fail()")
    assert type(context["exception"]) is ZeroDivisionError
    assert context["handle"] is handle
    assert context["exception"].__traceback__ is not None


def test_a_failing_timer_is_reported(loop, contexts):
    handle = loop.call_later(0, fail)
    run_once(loop, 2)
    assert contexts[0]["handle"] is handle
    assert contexts[0]["message"].startswith("Exception in callback fail()")


def test_a_failing_reader_is_reported_and_stays(loop, contexts):
    import socket

    one, other = socket.socketpair()
    with one, other:
        loop.add_reader(one, fail)
        other.send(b"x")
        run_once(loop, 2)
        assert len(contexts) >= 1
        assert loop.remove_reader(one)


class FailingFuture:
    """Its method `fails` raises. asyncio calls it after the coroutine's step, so the error is not the coroutine's."""

    _asyncio_future_blocking = True

    def __init__(self, loop, fails):
        self.loop, self.fails = loop, fails

    def __await__(self):
        yield self

    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "fails"):
            raise ZeroDivisionError
        return object.__getattribute__(self, name)

    def get_loop(self):
        return self.loop

    def add_done_callback(self, callback, *, context):
        pass

    def cancel(self, msg=None):
        return False


@pytest.mark.parametrize("fails", ["_asyncio_future_blocking", "get_loop", "add_done_callback", "cancel"])
@pytest.mark.parametrize("step", ["first", "after a future", "after sleep(0)"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_failing_task_step_is_reported_with_its_handle(loop, contexts, fails, step, debug):
    """The report has a callback's keys, so a handler that reads them works for every callback."""

    async def main():
        if step == "after a future":
            done = loop.create_future()
            loop.call_soon(done.set_result, None)
            await done
        elif step == "after sleep(0)":
            await asyncio.sleep(0)
        if fails == "cancel":
            task.cancel()
        await FailingFuture(loop, fails)

    loop.set_debug(debug)
    task = loop.create_task(main())
    run_once(loop, 3)
    (context,) = contexts
    assert type(context["exception"]) is ZeroDivisionError
    assert context.keys() == {"message", "exception", "handle"} | ({"source_traceback"} if debug else set())
    assert isinstance(context["handle"], asyncio.Handle)
    assert context["handle"]._callback.__self__ is task
    # Nothing else resumes the task.
    loop.call_soon(context["handle"]._callback, *context["handle"]._args)
    run_once(loop, 2)
    assert task.done()


def test_many_failures_in_one_batch(loop, contexts):
    for _ in range(100):
        loop.call_soon(fail)
    run_once(loop)
    assert len(contexts) == 100


@pytest.mark.parametrize(
    "error", [GeneratorExit, asyncio.CancelledError, BaseException, RecursionError, MemoryError, StopIteration]
)
def test_other_base_exceptions_are_reported_too(loop, contexts, error):
    loop.call_soon(fail, error)
    run_once(loop)
    assert [type(context["exception"]) for context in contexts] == [error]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("how", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_keyboard_interrupt_and_system_exit_leave_the_loop_with_the_queue_intact(loop, contexts, error, how):
    seen = []
    if how == "call_later":
        # Due timers run before later callbacks, so the rest waits behind the failing one in the same batch.
        loop.call_later(-1, fail, error)
        loop.call_later(-0.5, seen.append, "same batch")
    else:
        getattr(loop, how)(fail, error)
        loop.call_soon(seen.append, "same batch")
    with pytest.raises(error):
        loop.run_forever()
    assert seen == [] and contexts == []
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    loop.call_soon(seen.append, "queued after")
    run_once(loop)
    assert seen == ["same batch", "queued after"]


def test_keyboard_interrupt_from_a_signal_leaves_the_loop(loop):
    import _thread

    def interrupt():
        _thread.interrupt_main()
        for _ in range(100_000):
            pass

    seen = []
    loop.call_soon(interrupt)
    loop.call_soon(seen.append, "rest")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    run_once(loop)
    assert seen == ["rest"]


def interrupt_at(event, number, of_interest):
    """Raise KeyboardInterrupt at such an event in the frames of interest, as a handler of signals may."""
    passed = itertools.count(1)

    def trace(frame, happened, argument):
        if not of_interest(frame.f_code):
            return None
        if happened == event and next(passed) == number:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)


def run_interrupted(loop, event, number, of_interest):
    """Run a task that is interrupted. False if the event does not come so often."""
    steps = asyncio.sleep(0)
    task = loop.create_task(steps)
    tracing = sys.gettrace()
    try:
        interrupt_at(event, number, of_interest)
        loop.run_until_complete(task)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracing)
        # What is left of the task. It may have lost the step that was interrupted.
        run_once(loop, 2)
        steps.close()
        task._log_destroy_pending = task._log_traceback = False
    return False


def test_after_an_interrupt_in_any_line_of_a_step_other_tasks_run(loop):
    def is_of_a_step(code):
        return code.co_filename.endswith(os.path.join("tasks", "task.py"))

    number = 1
    while run_interrupted(loop, "line", number, is_of_a_step):
        assert asyncio.current_task(loop) is None
        assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"
        number += 1


@pytest.mark.only("c", "python", reason="asyncio's loop counts as running after that, from Python 3.13 on")
def test_after_an_interrupt_at_the_end_of_a_run_the_loop_runs_again(loop, impl):
    def ends_the_run(code):
        return code.co_name == "_run_forever_cleanup"

    assert run_interrupted(loop, "call", 1, ends_the_run) == (impl.name == "python")
    assert not loop.is_running()
    assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"


def test_stop_and_keyboard_interrupt_in_one_batch(loop):
    loop.call_soon(loop.stop)
    loop.call_soon(fail, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    seen = []
    loop.call_soon(loop.call_soon, loop.stop)
    loop.call_soon(seen.append, "went on")
    loop.run_forever()
    assert seen == ["went on"]


def test_the_default_handler_logs(loop, asyncio_log):
    loop.call_soon(fail)
    run_once(loop)
    (message,) = asyncio_log.take()
    assert message.startswith("Exception in callback fail()")
    assert "handle: <Handle fail()" in message
    assert "ZeroDivisionError" in message


def test_handlers_are_set_and_reset(loop, asyncio_log):
    def handler(loop, context):
        pass

    assert loop.get_exception_handler() is None
    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    with pytest.raises(TypeError, match="A callable object or None is expected"):
        loop.set_exception_handler("handler")
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None
    loop.call_exception_handler({"message": "plainly"})
    assert asyncio_log.take() == ["plainly"]


def test_a_failing_handler_is_logged_and_the_loop_goes_on(loop, asyncio_log):
    seen = []
    loop.set_exception_handler(lambda loop, context: fail(KeyError("in handler")))
    loop.call_soon(fail)
    loop.call_soon(seen.append, "went on")
    run_once(loop)
    assert seen == ["went on"]
    (message,) = asyncio_log.take()
    assert message.startswith("Unhandled error in exception handler")
    assert "in handler" in message


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_handler_may_end_the_program(loop, error):
    seen = []
    loop.set_exception_handler(lambda loop, context: fail(error))
    loop.call_soon(fail)
    loop.call_soon(seen.append, "rest")
    with pytest.raises(error):
        loop.run_forever()
    loop.set_exception_handler(None)
    run_once(loop)
    assert seen == ["rest"]


def test_a_handler_may_stop_the_loop(loop):
    loop.set_exception_handler(lambda loop, context: loop.stop())
    loop.call_soon(fail)
    loop.run_forever()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the handler runs in the handle's context since CPython 3.12")
def test_the_handler_runs_in_the_context_of_the_handle(loop):
    variable = contextvars.ContextVar("variable", default="outside")
    seen = []
    context = contextvars.copy_context()
    context.run(variable.set, "inside")
    loop.set_exception_handler(lambda loop, report: seen.append(variable.get()))
    loop.call_soon(fail, context=context)
    run_once(loop)
    assert seen == ["inside"]


def test_replaced_methods_are_honoured(loop):
    """Programs assign to attributes of the loop, so the core must look up its own calls each time."""
    contexts = []
    loop.call_exception_handler = contexts.append
    loop.call_soon(fail)
    run_once(loop)
    assert len(contexts) == 1
    del loop.call_exception_handler


@pytest.mark.only("c", reason="asyncio's Handle._run(), which the pure loop uses, leaves this cycle to the collector")
def test_a_report_leaves_no_cycle_behind(loop):
    import gc
    import weakref

    class Error(Exception):
        pass

    references = []
    loop.set_exception_handler(lambda loop, context: references.append(weakref.ref(context["exception"])))
    gc.collect()
    with without_collector():
        loop.call_soon(fail, Error)
        run_once(loop)
        assert references[0]() is None
