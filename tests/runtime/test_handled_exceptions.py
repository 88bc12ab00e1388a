"""The exception that a caller handles: the extension's functions leave it where it is."""

import asyncio
import sys
import weakref

import pytest

OPERATIONS = {
    "call_at": lambda loop: loop.call_at(0, int),
    "call_later": lambda loop: loop.call_later(0, int),
    "cancel": lambda loop: loop.call_later(1, int).cancel(),
    "call_soon": lambda loop: loop.call_soon(int),
    "create_future": lambda loop: loop.create_future(),
    "set_result": lambda loop: loop.create_future().set_result(None),
    "remove_reader": lambda loop: loop.remove_reader(0),
    "get_exception_handler": lambda loop: loop.get_exception_handler(),
}


class Handled(Exception):
    pass


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_generator_that_goes_on_later_does_not_handle_it(loop, name):
    def generator():
        OPERATIONS[name](loop)
        yield
        yield sys.exc_info()[1]

    suspended = generator()
    try:
        raise Handled
    except Handled as error:
        reference = weakref.ref(error)
        next(suspended)
    assert next(suspended) is None
    assert reference() is None


def errors_of(error):
    while error is not None:
        yield type(error)
        error = error.__cause__ or error.__context__


@pytest.mark.skipif(sys.version_info < (3, 12), reason="wait_for() raises in another way")
def test_a_timeout_in_an_except_clause_has_asyncios_context(loop):
    async def main():
        try:
            raise Handled
        except Handled:
            await asyncio.wait_for(asyncio.sleep(10), 0.001)

    with pytest.raises(asyncio.TimeoutError) as raised:
        loop.run_until_complete(main())
    assert list(errors_of(raised.value)) == [asyncio.TimeoutError, asyncio.CancelledError]


def test_what_is_thrown_into_a_future_gets_no_context(loop):
    waiting = loop.create_future().__await__()
    next(waiting)
    try:
        raise Handled
    except Handled:
        with pytest.raises(ZeroDivisionError) as raised:
            waiting.throw(ZeroDivisionError())
    assert raised.value.__context__ is None


def test_what_the_caller_of_the_loop_handles_is_the_context_of_a_cancellation(loop):
    async def main():
        future = loop.create_future()
        loop.call_soon(future.cancel)
        try:
            await future
        except asyncio.CancelledError as error:
            return error.__context__

    try:
        raise Handled
    except Handled:
        assert type(loop.run_until_complete(main())) is Handled


def test_a_cancelled_task_has_no_context_of_an_outer_coroutine(loop):
    found = []

    async def inner():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError as error:
            found.append(error.__context__)

    async def main():
        try:
            raise Handled
        except Handled:
            await inner()

    task = loop.create_task(main())
    loop.call_soon(loop.call_soon, task.cancel)
    loop.run_until_complete(task)
    assert found == [None]
