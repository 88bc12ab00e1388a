"""Bad input to the functions that run callbacks and tasks: they raise asyncio's exceptions, nothing leaks, and the loop
goes on.

Each case is a function of a world: the loop and its classes. It runs on asyncio's loop first; the implementation must
do the same: raise the same exception with the same words, or return the same result.
"""

import asyncio
import contextvars
import gc
import math
import threading
import types
import warnings

import pytest
from support.bad_input import collection, nothing, outcome
from support.stepping import run_once

CASES, case = collection()


async def function():
    """A coroutine function, often passed by mistake in place of its call."""


@case()
def a_callback_that_is_no_callable(world):
    world.loop.call_soon("text")
    run_once(world.loop)


@case()
def a_callback_that_is_none(world):
    world.loop.call_soon(None, 1)
    run_once(world.loop)


@case(words=False)
def no_callback_at_all(world):
    world.loop.call_soon()


@case(words=False)
def no_callback_for_a_timer(world):
    world.loop.call_later(1)


@case(words=False)
def an_unknown_keyword(world):
    world.loop.call_soon(print, nonsense=1)


@case()
def a_timer_callback_that_is_no_callable(world):
    world.loop.call_later(0, 5)
    run_once(world.loop, 2)


@case()
def a_threadsafe_callback_that_is_no_callable(world):
    world.loop.call_soon_threadsafe(5)
    run_once(world.loop, 2)


@case()
def a_coroutine_where_a_callback_is_due(world):
    world.loop.call_soon(world.coroutine())
    run_once(world.loop)


@case()
def a_coroutine_function_where_a_callback_is_due(world):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outside debug mode the loop calls it, and the coroutine is never awaited
        world.loop.call_soon(function)
        run_once(world.loop)
        gc.collect()


@case()
def a_coroutine_as_a_timer(world):
    world.loop.call_later(1, world.coroutine())


@case()
def wrong_arguments_for_the_callback(world):
    world.loop.call_soon(lambda: None, 1, 2)
    run_once(world.loop)


@case()
def a_context_that_is_entered_already(world):
    context = contextvars.copy_context()
    world.loop.call_soon(int, context=context)
    context.run(run_once, world.loop)


@case()
def a_delay_of_none(world):
    world.loop.call_later(None, int)


@case()
def a_time_of_none(world):
    world.loop.call_at(None, int)


@case()
def a_delay_that_is_text(world):
    world.loop.call_later("soon", int)


@case(words=False)
def a_delay_that_is_complex(world):
    world.loop.call_later(1j, int)
    world.loop.call_later(1, int)


@case()
def a_negative_delay(world):
    world.loop.call_later(-5, world.reports.append, "ran")
    run_once(world.loop)


@case()
def an_infinitely_negative_delay(world):
    world.loop.call_later(-math.inf, world.reports.append, "ran")
    run_once(world.loop)


@case()
def an_infinite_delay(world):
    world.loop.call_later(math.inf, world.reports.append, "never").cancel()
    run_once(world.loop)


@case()
def a_nan_delay(world):
    world.loop.call_later(math.nan, int)
    run_once(world.loop)


@case()
def a_coroutine_that_is_no_coroutine(world):
    world.loop.create_task("text")


@case()
def a_function_for_a_task(world):
    world.loop.create_task(function)


@case()
def a_future_for_a_task(world):
    world.loop.create_task(world.loop.create_future())


@case(words=False)
def nothing_for_a_task(world):
    world.impl.Task(loop=world.loop)


@case()
def a_generator_for_a_task(world):
    world.loop.create_task(number for number in ())
    run_once(world.loop)


@case()
def a_task_initialised_badly_twice(world):
    task = world.loop.create_task(world.coroutine())
    run_once(world.loop)
    task.__init__("text", loop=world.loop)


@case()
def run_until_complete_with_a_number(world):
    world.loop.run_until_complete(5)


@case()
def run_until_complete_with_a_future_of_another_loop(world):
    world.loop.run_until_complete(world.other_loop().create_future())


@case()
def run_until_complete_on_a_closed_loop(world):
    loop = world.closed_loop()
    loop.run_until_complete(loop.create_future())


@case()
def call_soon_on_a_closed_loop(world):
    world.closed_loop().call_soon(int)


@case()
def call_later_on_a_closed_loop(world):
    world.closed_loop().call_later(1, int)


@case()
def call_soon_threadsafe_on_a_closed_loop(world):
    world.closed_loop().call_soon_threadsafe(int)


@case()
def create_task_on_a_closed_loop(world):
    world.closed_loop().create_task(world.coroutine())


@case()
def run_in_executor_on_a_closed_loop(world):
    world.closed_loop().run_in_executor(None, int)


@case()
def set_result_on_a_future_of_a_closed_loop(world):
    loop = world.impl.new_event_loop()
    future = loop.create_future()
    future.add_done_callback(print)
    loop.close()
    future.set_result(1)


@case()
def a_task_of_a_closed_loop_is_cancelled(world):
    loop = world.impl.new_event_loop()
    future = loop.create_future()

    async def main():
        await future

    task = loop.create_task(main())
    task._log_destroy_pending = False
    run_once(loop)
    loop.close()
    task.cancel()


@case()
def a_loop_that_runs_in_another_thread(world):
    """Debug mode detects this."""
    started, finish = threading.Event(), threading.Event()
    world.loop.call_soon(lambda: (started.set(), finish.wait(), world.loop.stop()))
    thread = threading.Thread(target=world.loop.run_forever)
    thread.start()
    started.wait()
    try:
        world.loop.call_soon(int)
    finally:
        finish.set()
        thread.join()


@case()
def a_loop_closed_while_it_runs(world):
    world.loop.call_soon(world.loop.close)
    run_once(world.loop)


@case()
def an_awaited_future_of_another_loop(world):
    async def main():
        await world.other_loop().create_future()

    world.run(main())


@case()
def a_future_awaited_twice_at_once(world):
    future = world.loop.create_future()

    async def main():
        return await asyncio.gather(wait(), wait())

    async def wait():
        return await future

    world.loop.call_soon(future.set_result, "both")
    return world.run(main())


@case()
def a_coroutine_awaited_twice(world):
    coroutine = nothing()

    async def main():
        await coroutine
        await coroutine

    world.run(main())


@case()
def a_task_that_awaits_itself(world):
    async def main():
        await task

    task = world.loop.create_task(main())
    world.run(task)


@case()
def a_yield_of_nonsense(world):
    @types.coroutine
    def bad():
        yield "nonsense"

    async def main():
        await bad()

    world.run(main())


@case(words=False)
def set_result_twice(world):
    future = world.loop.create_future()
    future.set_result(1)
    future.set_result(2)


@case(words=False)
def set_exception_after_cancel(world):
    future = world.loop.create_future()
    future.cancel()
    future.set_exception(ZeroDivisionError())


@case(words=False)
def set_result_without_one(world):
    world.loop.create_future().set_result()


@case()
def set_exception_to_what_is_none(world):
    world.loop.create_future().set_exception("text")


@case()
def result_too_early(world):
    world.loop.create_future().result()


@case()
def exception_too_early(world):
    world.loop.create_future().exception()


@case()
def set_result_of_a_task(world):
    task = world.loop.create_task(world.coroutine())
    try:
        task.set_result(1)
    finally:
        world.run(task)


@case()
def a_done_callback_that_is_no_callable(world):
    future = world.loop.create_future()
    future.add_done_callback("text")
    future.set_result(1)
    run_once(world.loop)


@case(words=False)
def no_done_callback(world):
    world.loop.create_future().add_done_callback()


@case(words=False)
def a_done_callback_with_a_context_by_position(world):
    world.loop.create_future().add_done_callback(int, contextvars.copy_context())


@case()
def removing_a_done_callback_that_is_not_there(world):
    return world.loop.create_future().remove_done_callback(5)


@case()
def a_future_without_a_loop(world):
    world.impl.Future(loop=5)


@case(words=False)
def a_future_with_the_loop_by_position(world):
    world.impl.Future(world.loop)


@case()
def a_cancelled_handle_cancelled_again(world):
    handle = world.loop.call_soon(int)
    handle.cancel()
    handle.cancel()
    run_once(world.loop)
    handle.cancel()
    return handle.cancelled()


@case()
def a_cancelled_handle_run_by_hand(world):
    handle = world.loop.call_soon(world.reports.append, "ran")
    handle.cancel()
    run_once(world.loop)
    return list(world.reports)


@case(words=False)
def a_handle_without_anything(world):
    world.impl.Handle()


@case()
def an_exception_handler_that_is_no_callable(world):
    world.loop.set_exception_handler("text")


@case()
def a_task_factory_that_is_no_callable(world):
    world.loop.set_task_factory("text")


@case()
def a_task_factory_that_returns_nonsense(world):
    world.loop.set_task_factory(lambda loop, coroutine, **keywords: coroutine.close())
    try:
        return world.loop.create_task(nothing())
    finally:
        world.loop.set_task_factory(None)


@case()
def a_task_factory_that_fails(world):
    def factory(loop, coroutine, **keywords):
        coroutine.close()
        raise ZeroDivisionError("no task")

    world.loop.set_task_factory(factory)
    try:
        return world.loop.create_task(nothing())
    finally:
        world.loop.set_task_factory(None)


@case()
def a_signal_that_does_not_exist(world):
    world.loop.add_signal_handler(1000, int)


@case()
def a_signal_that_cannot_be_caught(world):
    world.loop.add_signal_handler(9, int)


@case()
def a_coroutine_as_a_signal_handler(world):
    world.loop.add_signal_handler(10, world.coroutine())


@case()
def a_default_executor_that_is_none(world):
    world.loop.set_default_executor(5)


@case()
def an_executor_job_that_is_no_callable(world):
    world.run(run_in_executor_and_shut_down(world.loop))


async def run_in_executor_and_shut_down(loop):
    try:
        await loop.run_in_executor(None, "text")
    finally:
        await loop.shutdown_default_executor()


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
@pytest.mark.parametrize("name", CASES)
def test_bad_input(impl, load_implementation, asyncio_log, name, debug):
    expected = outcome(load_implementation("asyncio"), CASES[name], debug, asyncio_log)
    assert outcome(impl, CASES[name], debug, asyncio_log) == expected
