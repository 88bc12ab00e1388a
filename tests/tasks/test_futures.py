"""Future: states, results, callbacks, cancellation, reports."""

import asyncio
import collections.abc
import contextvars
import sys

import pytest
from support.implementations import missing_names
from support.interpreter import checks_futures, counts_references
from support.stepping import run_once


@pytest.fixture
def future(impl, loop):
    future = impl.Future(loop=loop)
    yield future
    if future.done() and not future.cancelled():
        future.exception()


@pytest.mark.promise("P21")
def test_isinstance(impl, loop):
    made = loop.create_future()
    assert isinstance(made, impl.Future)
    assert isinstance(made, asyncio.Future)
    assert asyncio.isfuture(made)
    assert not isinstance(made, asyncio.Task)
    made.cancel()


@checks_futures
def test_a_new_future_is_pending(future, loop):
    assert future.done() is False
    assert future.cancelled() is False
    assert future._state == "PENDING"
    assert future.get_loop() is loop and future._loop is loop
    with pytest.raises(asyncio.InvalidStateError, match="Result is not set"):
        future.result()
    with pytest.raises(asyncio.InvalidStateError, match="Exception is not set"):
        future.exception()


def test_set_result(future):
    future.set_result("value")
    assert future.done() is True
    assert future._state == "FINISHED"
    assert future.result() == "value" and future.result() == "value"
    assert future.exception() is None
    assert future._result == "value" and future._exception is None


@pytest.mark.parametrize("value", [None, False, (), StopIteration("a value is only a value"), asyncio.CancelledError()])
def test_any_object_can_be_the_result(loop, impl, value):
    future = impl.Future(loop=loop)
    future.set_result(value)
    assert future.result() is value

    async def waiter():
        return await future

    assert loop.run_until_complete(waiter()) is value


def test_set_exception(future):
    error = ZeroDivisionError("no")
    future.set_exception(error)
    assert future.done() is True
    assert future.exception() is error
    with pytest.raises(ZeroDivisionError) as caught:
        future.result()
    assert caught.value is error


def test_an_exception_class_is_instantiated(future):
    future.set_exception(ZeroDivisionError)
    assert type(future.exception()) is ZeroDivisionError


def test_setting_twice(future):
    future.set_result(1)
    with pytest.raises(asyncio.InvalidStateError):
        future.set_result(2)
    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(ZeroDivisionError())
    assert future.result() == 1
    assert future.cancel() is False


def test_stop_iteration_cannot_be_the_exception(impl, loop):
    for make in (StopIteration, StopIteration(1)):
        future = impl.Future(loop=loop)
        if sys.version_info < (3, 13):
            with pytest.raises(TypeError, match="StopIteration interacts badly with generators"):
                future.set_exception(make)
            assert not future.done()
            future.cancel()
        else:
            future.set_exception(make)
            with pytest.raises(RuntimeError, match="StopIteration interacts badly with generators") as caught:
                future.result()
            assert isinstance(caught.value.__cause__, StopIteration)


@checks_futures
def test_what_is_no_exception_is_refused(impl, loop):
    oracle = asyncio.Future(loop=loop)
    for wrong in ("text", 1, None, object):
        future = impl.Future(loop=loop)
        with pytest.raises(TypeError) as ours:
            future.set_exception(wrong)
        with pytest.raises(TypeError) as theirs:
            oracle.set_exception(wrong)
        assert type(ours.value) is type(theirs.value)
        assert not future.done()


def test_cancel(future):
    assert future.cancel() is True
    assert future.cancelled() is True and future.done() is True
    assert future._state == "CANCELLED"
    assert future.cancel() is False
    for method in (future.result, future.exception):
        with pytest.raises(asyncio.CancelledError):
            method()
    with pytest.raises(asyncio.InvalidStateError):
        future.set_result(1)


@pytest.mark.parametrize("message", [None, "text", 5, ("tuple",)], ids=repr)
def test_cancel_message(future, message):
    future.cancel(message)
    assert future._cancel_message == message
    with pytest.raises(asyncio.CancelledError) as caught:
        future.result()
    assert caught.value.args == (() if message is None else (message,))


def test_cancel_message_by_keyword(future):
    future.cancel(msg="text")
    with pytest.raises(asyncio.CancelledError, match="text"):
        future.exception()


def test_callbacks_run_in_order_in_the_next_turn(future, loop):
    seen = []
    for number in range(5):
        future.add_done_callback(lambda done, n=number: seen.append((n, done is future)))
    future.set_result(None)
    assert seen == []
    run_once(loop)
    assert seen == [(number, True) for number in range(5)]


def test_a_callback_added_to_a_done_future_runs_in_the_next_turn(future, loop):
    seen = []
    future.set_result(None)
    future.add_done_callback(seen.append)
    assert seen == []
    run_once(loop)
    assert seen == [future]


def test_cancelling_runs_the_callbacks(future, loop):
    seen = []
    future.add_done_callback(seen.append)
    future.cancel()
    run_once(loop)
    assert seen == [future]


def test_callback_contexts(future, loop):
    variable = contextvars.ContextVar("variable", default="default")
    seen = []
    given = contextvars.Context()
    given.run(variable.set, "given")
    variable.set("at adding")
    future.add_done_callback(lambda _: seen.append(variable.get()))
    variable.set("later")
    future.add_done_callback(lambda _: seen.append(variable.get()), context=given)
    future.set_result(None)
    run_once(loop)
    assert seen == ["at adding", "given"]


def test_remove_done_callback_removes_every_equal_one(future, loop):
    seen = []

    class Equal:
        def __eq__(self, other):
            return isinstance(other, Equal)

        __hash__ = None

        def __call__(self, future):
            seen.append("removed")

    future.add_done_callback(Equal())
    future.add_done_callback(seen.append)
    future.add_done_callback(Equal())
    assert future.remove_done_callback(Equal()) == 2
    assert future.remove_done_callback(Equal()) == 0
    assert future.remove_done_callback(print) == 0
    future.set_result(None)
    run_once(loop)
    assert seen == [future]


def test_callbacks_are_listed_with_their_contexts(impl, loop, future):
    assert not future._callbacks
    context = contextvars.copy_context()
    future.add_done_callback(print, context=context)
    future.add_done_callback(repr)
    listed = future._callbacks
    assert [callback for callback, _ in listed] == [print, repr]
    assert listed[0][1] is context
    assert isinstance(listed[1][1], contextvars.Context)
    assert future.remove_done_callback(print) == future.remove_done_callback(repr) == 1
    assert not future._callbacks


def test_a_failing_callback_does_not_keep_the_others_from_running(future, loop):
    seen, contexts = [], []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(seen.append)
    future.set_result(None)
    run_once(loop)
    assert seen == [future]
    assert type(contexts[0]["exception"]) is ZeroDivisionError


def test_awaiting(impl, loop):
    async def main(future):
        return await future

    future = impl.Future(loop=loop)
    loop.call_soon(future.set_result, "value")
    assert loop.run_until_complete(main(future)) == "value"
    assert loop.run_until_complete(main(future)) == "value"  # done: no wait


def test_many_tasks_await_one_future(impl, loop):
    seen = []

    async def waiter(number):
        seen.append((number, await future))

    async def main():
        tasks = [loop.create_task(waiter(number)) for number in range(50)]
        await asyncio.sleep(0)
        future.set_result("value")
        await asyncio.gather(*tasks)

    future = impl.Future(loop=loop)
    loop.run_until_complete(main())
    assert seen == [(number, "value") for number in range(50)]


def test_callbacks_and_waiting_tasks_wake_in_the_order_they_came(impl, loop):
    seen = []

    async def waiter(number):
        await future
        seen.append(number)

    async def main():
        tasks = []
        for number in range(0, 10, 2):
            tasks.append(loop.create_task(waiter(number)))
            await asyncio.sleep(0)
            future.add_done_callback(lambda _, n=number: seen.append(n + 1))
        future.set_result(None)
        await asyncio.gather(*tasks)

    future = impl.Future(loop=loop)
    loop.run_until_complete(main())
    assert seen == list(range(10))


def test_the_await_iterator_by_hand(impl, loop):
    future = impl.Future(loop=loop)
    iterator = future.__await__()
    assert next(iterator) is future
    assert future._asyncio_future_blocking is True
    future._asyncio_future_blocking = False
    future.set_result("value")
    with pytest.raises(StopIteration) as caught:
        iterator.send(None)
    assert caught.value.value == "value"


def test_resuming_too_early_does_no_harm(impl, loop):
    """asyncio's Future in Python raises; its Future in C waits again."""
    future = impl.Future(loop=loop)
    iterator = iter(future)
    next(iterator)
    future._asyncio_future_blocking = False
    try:
        assert next(iterator) is future
    except RuntimeError as error:
        assert str(error) == "await wasn't used with future"
    assert not future.done()
    future.cancel()


def test_the_await_iterator_is_no_coroutine(future):
    # Tools that follow cr_await ask for the frame of whatever is a coroutine.
    iterator = future.__await__()
    assert not isinstance(iterator, collections.abc.Coroutine)
    assert not isinstance(iterator, collections.abc.Awaitable)

    async def await_it():
        await iterator

    coroutine = await_it()
    with pytest.raises(TypeError, match="await"):
        coroutine.send(None)


def test_throwing_into_the_await_iterator(impl, loop):
    for argument in (ZeroDivisionError, ZeroDivisionError("text")):
        future = impl.Future(loop=loop)
        iterator = future.__await__()
        next(iterator)
        with pytest.raises(ZeroDivisionError):
            iterator.throw(argument)
        future.cancel()
    iterator = impl.Future(loop=loop).__await__()
    with pytest.raises(TypeError):
        iterator.throw("no exception")
    iterator.close()
    with pytest.raises(StopIteration):
        next(iterator)


def test_the_blocking_mark_is_duck_typings_door(impl, future):
    assert future._asyncio_future_blocking is False
    assert type(future)._asyncio_future_blocking is not None
    future._asyncio_future_blocking = True
    assert future._asyncio_future_blocking is True
    future._asyncio_future_blocking = False


@pytest.mark.only("c", "asyncio", reason="a Future in Python has it as a plain attribute")
def test_the_blocking_mark_cannot_be_deleted(future):
    with pytest.raises(AttributeError):
        del future._asyncio_future_blocking


def test_repr(impl, loop):
    name = impl.Future.__name__
    assert name == "Future"
    pending, finished, failed, cancelled = (impl.Future(loop=loop) for _ in range(4))
    finished.set_result("value")
    failed.set_exception(ZeroDivisionError("no"))
    cancelled.cancel()
    assert repr(pending) == "<Future pending>"
    assert repr(finished) == "<Future finished result='value'>"
    assert repr(failed) == "<Future finished exception=ZeroDivisionError('no')>"
    assert repr(cancelled) == "<Future cancelled>"
    failed.exception()
    theirs = asyncio.Future(loop=loop)
    for _ in range(4):
        assert repr(pending) == repr(theirs)
        pending.add_done_callback(print)
        theirs.add_done_callback(print)
    assert len(pending._callbacks) == 4
    pending.cancel(), theirs.cancel()
    run_once(loop)


def test_a_repr_that_contains_itself(impl, loop):
    future = impl.Future(loop=loop)
    future.set_result(future)
    assert repr(future) == "<Future finished result=<Future finished result=...>>" or "..." in repr(future)


def test_source_traceback_in_debug_mode(impl, loop):
    loop.set_debug(True)
    future = impl.Future(loop=loop)
    frame = future._source_traceback[-1]
    assert (frame[0], frame[1]) == (__file__, sys._getframe().f_lineno - 2)
    assert repr(future).endswith(f"created at {__file__}:{frame[1]}>")
    future.cancel()
    loop.set_debug(False)
    assert impl.Future(loop=loop)._source_traceback is None


@counts_references
def test_an_unretrieved_exception_is_reported(impl, loop):
    contexts = []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    future = impl.Future(loop=loop)
    error = ZeroDivisionError("unseen")
    future.set_exception(error)
    assert future._log_traceback is True
    text = repr(future)
    del future
    assert len(contexts) == 1
    assert contexts[0]["message"] == "Future exception was never retrieved"
    assert contexts[0]["exception"] is error
    assert repr(contexts[0]["future"]) == text
    assert "source_traceback" not in contexts[0]


@counts_references
def test_the_report_has_the_source_in_debug_mode(impl, loop):
    contexts = []
    loop.set_debug(True)
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    future = impl.Future(loop=loop)
    traceback = future._source_traceback
    future.set_exception(ZeroDivisionError)
    del future
    assert contexts[0]["source_traceback"] == traceback


@pytest.mark.parametrize("look", ["result", "exception", "await", "switch off"])
def test_an_exception_that_was_seen_is_not_reported(impl, loop, look):
    """A report would fail the log check that follows every test."""
    future = impl.Future(loop=loop)
    future.set_exception(ZeroDivisionError("seen"))

    async def wait():
        await future

    if look == "exception":
        future.exception()
    elif look == "switch off":
        future._log_traceback = False
    else:
        with pytest.raises(ZeroDivisionError):
            future.result() if look == "result" else loop.run_until_complete(wait())
    assert future._log_traceback is False


def test_the_report_cannot_be_switched_on(future):
    with pytest.raises(ValueError, match="_log_traceback can only be set to False"):
        future._log_traceback = True


@counts_references
def test_the_default_report_goes_to_the_log(impl, loop, asyncio_log):
    impl.Future(loop=loop).set_exception(ZeroDivisionError("unseen"))
    (message,) = asyncio_log.take()
    assert message.startswith("Future exception was never retrieved")
    assert "ZeroDivisionError: unseen" in message


def test_a_subclass(impl, loop):
    class Mine(impl.Future):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = "attribute"

    future = Mine(loop=loop)
    assert isinstance(future, asyncio.Future) and isinstance(future, Mine)
    assert repr(future) == "<Mine pending>"
    loop.call_soon(future.set_result, future.extra)
    assert loop.run_until_complete(future) == "attribute"


def test_a_subclass_may_override_what_a_waiting_task_calls(impl, loop):
    calls = []

    class Noisy(impl.Future):
        def add_done_callback(self, callback, *, context=None):
            calls.append("add_done_callback")
            super().add_done_callback(callback, context=context)

        def result(self):
            calls.append("result")
            return super().result()

    async def main():
        future = Noisy(loop=loop)
        loop.call_soon(future.set_result, "value")
        return await future

    assert loop.run_until_complete(main()) == "value"
    assert "add_done_callback" in calls


def test_positional_arguments_are_refused(impl, loop):
    with pytest.raises(TypeError):
        impl.Future(loop)


def test_without_a_loop_the_running_one_is_taken(impl):
    async def main():
        assert impl.Future().get_loop() is asyncio.get_running_loop()

    impl.run(main())


def test_class_getitem_and_attributes(impl, loop, future):
    assert impl.Future[int].__origin__ is impl.Future
    future.any_attribute = 1
    assert future.any_attribute == 1


def test_every_name_of_asyncios_future_is_there(impl, future):
    assert missing_names(future, asyncio.Future) == []


def test_make_cancelled_error(impl, loop):
    future = impl.Future(loop=loop)
    future.cancel("text")
    first, second = future._make_cancelled_error(), future._make_cancelled_error()
    assert isinstance(first, asyncio.CancelledError) and isinstance(second, asyncio.CancelledError)
    assert first.args == second.args == ("text",)


def test_make_cancelled_error_leaves_the_outcome(impl, loop):
    """asyncio's gather() calls it on a future that has failed, if the gathering was cancelled meanwhile."""
    failed, finished = impl.Future(loop=loop), impl.Future(loop=loop)
    error = ZeroDivisionError("set")
    failed.set_exception(error)
    finished.set_result("result")
    for future in (failed, finished):
        assert type(future._make_cancelled_error()) is asyncio.CancelledError
    assert failed.exception() is error and failed._exception is error and failed._result is None
    assert finished.result() == "result" and finished.exception() is None


def test_raising_again_does_not_grow_the_traceback(impl, loop):
    """However often a failed future is awaited, its exception must not collect the frames of all waiters."""

    async def wait():
        await future

    def depth(error):
        count, traceback = 0, error.__traceback__
        while traceback is not None:
            count, traceback = count + 1, traceback.tb_next
        return count

    future = impl.Future(loop=loop)
    future.set_exception(ZeroDivisionError())
    depths = set()
    for _ in range(5):
        with pytest.raises(ZeroDivisionError) as caught:
            loop.run_until_complete(wait())
        depths.add(depth(caught.value))
    assert len(depths) == 1


def test_a_coroutine_may_yield_from_a_future_in_a_generator(impl, loop):
    import types

    @types.coroutine
    def old_style():
        value = yield from future
        return value + 1

    async def main():
        return await old_style()

    future = impl.Future(loop=loop)
    loop.call_soon(future.set_result, 1)
    assert loop.run_until_complete(main()) == 2
