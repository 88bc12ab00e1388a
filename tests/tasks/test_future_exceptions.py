"""Exceptions of every kind in futures and tasks: which one is raised, and the traceback it has."""

import asyncio
import collections.abc
import traceback

import pytest
from support.compiled import keeps_traceback_entries
from support.stepping import run_once


def zero_division(*_):
    raise ZeroDivisionError


class ForgetsItself(Exception):
    def with_traceback(self, traceback):
        pass


class Copies(Exception):
    def with_traceback(self, traceback):
        return type(self)("copy")


class RaisesAnother(Exception):
    with_traceback = zero_division


class HidesItsTraceback(Exception):
    __traceback__ = property(zero_division)


class SaysItIsSomethingElse(Exception):
    __class__ = int


class HidesAll(Exception):
    args = property(zero_division)
    __eq__ = __hash__ = __bool__ = __len__ = __str__ = zero_division


class EndsAnIteration(StopIteration):
    """Up to Python 3.12 a future accepts subclasses."""


KINDS = (ForgetsItself, Copies, RaisesAnother, HidesItsTraceback, SaysItIsSomethingElse, HidesAll)


@pytest.mark.parametrize("kind", KINDS)
def test_the_exception_that_was_set_is_raised_whatever_its_class_overrides(impl, loop, kind):
    error = kind("x")
    future = loop.create_future()
    future.set_exception(error)

    async def awaits():
        try:
            await future
        except Exception as raised:
            return raised

    async def waits(pending):
        try:
            await pending
        except Exception as raised:
            return raised

    async def raises():
        raise error

    for _ in range(2):
        assert loop.run_until_complete(awaits()) is error
        with pytest.raises(BaseException) as caught:
            future.result()
        assert caught.value is error
        assert future.exception() is error

    pending = loop.create_future()
    task = loop.create_task(waits(pending))
    run_once(loop)
    pending.set_exception(error)
    assert loop.run_until_complete(task) is error
    assert loop.run_until_complete(waits(loop.create_task(raises()))) is error
    iterator = future.__await__()
    with pytest.raises(BaseException) as caught:
        next(iterator)
    assert caught.value is error


def test_what_only_says_that_it_is_an_exception_is_refused(loop):
    class Pretends:
        __class__ = ValueError

    future = loop.create_future()
    for wrong in (Pretends(), int, object()):
        with pytest.raises(TypeError, match="invalid exception object"):
            future.set_exception(wrong)
    assert not future.done()


def test_an_exception_class_whose_constructor_ends_the_future(loop):
    future = loop.create_future()

    class Ends(Exception):
        def __init__(self):
            future.set_result("first")

    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(Ends)
    assert future.result() == "first"


def test_a_constructor_that_fails_leaves_the_future_pending(loop):
    class Fails(Exception):
        __init__ = zero_division

    class MakesAnother(Exception):
        def __new__(cls):
            return 3

    future = loop.create_future()
    with pytest.raises(ZeroDivisionError):
        future.set_exception(Fails)
    with pytest.raises(TypeError, match="invalid exception object"):
        future.set_exception(MakesAnother)
    assert not future.done()


def test_subclasses_of_stop_iteration(loop):
    future = loop.create_future()
    future.set_exception(EndsAnIteration(1))
    reference = asyncio.new_event_loop().create_future()
    reference.get_loop().close()
    reference.set_exception(EndsAnIteration(1))
    assert type(future.exception()) is type(reference.exception())
    assert repr(future.exception()) == repr(reference.exception())


def test_a_coroutine_that_ends_with_a_subclass_of_stop_iteration(loop, impl):
    class Hides(StopIteration):
        value = property(zero_division)

    class Ends:
        def send(self, *_):
            raise Hides(7)

        throw = close = __iter__ = __next__ = __await__ = send
        cr_code = cr_frame = cr_running = cr_await = None

    collections.abc.Coroutine.register(Ends)
    assert loop.run_until_complete(impl.Task(Ends(), loop=loop)) == 7


def entries(error):
    return [(entry.name, entry.filename) for entry in traceback.extract_tb(error.__traceback__)]


async def of_waits(make_future, make_task, Future, Task):
    """Every way to get an exception of a future or a task: its type and the frames of its traceback."""
    seen = []

    def note(error):
        while error is not None:
            seen.append((type(error).__name__, str(error), entries(error)))
            error = error.__cause__ or error.__context__

    async def sleeper():
        await asyncio.sleep(3600)

    async def waiter(future):
        await future

    async def fails():
        raise ZeroDivisionError

    async def yields_what_is_no_future():
        class Bad:
            def __await__(self):
                yield 3

        await Bad()

    cancelled = make_future()
    cancelled.cancel("text")
    task = make_task(sleeper())
    await asyncio.sleep(0)
    task.cancel()
    waited_for = make_future()
    waiting = make_task(waiter(waited_for))
    await asyncio.sleep(0)
    waited_for.cancel()
    refused = make_task(asyncio.sleep(0))
    failed = make_future()
    failed.set_exception(ValueError("x"))
    for awaited in (cancelled, task, waiting, make_task(fails()), make_task(yields_what_is_no_future()), failed):
        try:
            await awaited
        except BaseException as error:
            note(error)
    await asyncio.gather(task, waiting, return_exceptions=True)
    for limited in (lambda: asyncio.wait_for(asyncio.sleep(3600), 0), lambda: asyncio.wait_for(make_future(), 0.001)):
        try:
            await limited()
        except BaseException as error:
            note(error)
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(3600)
    except BaseException as error:
        note(error)
    for call in (
        lambda: make_future().result(),
        lambda: make_future().exception(),
        lambda: make_future().set_exception(3),
        lambda: make_future().__await__().throw(ZeroDivisionError),
        lambda: cancelled.set_result(1),
        lambda: cancelled.set_exception(ValueError),
        lambda: cancelled.result(),
        lambda: cancelled.exception(),
        lambda: next(cancelled.__await__()),
        lambda: refused.set_result(1),
        lambda: refused.set_exception(ValueError),
        lambda: setattr(cancelled, "_log_traceback", True),
        lambda: Future.__new__(Future).result(),
        lambda: Future.__new__(Future).cancel(),
        lambda: Future.__new__(Future).get_loop(),
        lambda: Task(3),
    ):
        try:
            call()
        except BaseException as error:
            note(error)
        else:
            seen.append("no exception")
    await refused
    return seen


@pytest.mark.only("c", "asyncio", reason="asyncio's own futures in Python leave their frames too, under other names")
def test_futures_and_tasks_leave_no_entries_of_their_own(impl, loop):
    if keeps_traceback_entries(loop):
        pytest.skip("a debug build keeps the entries of compiled code")
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        make_future = runner.get_loop().create_future
        expected = runner.run(of_waits(make_future, asyncio.ensure_future, asyncio.Future, asyncio.Task))
    found = loop.run_until_complete(of_waits(loop.create_future, asyncio.ensure_future, impl.Future, impl.Task))
    assert found == expected


class MadeOtherwise(Exception):
    def __new__(cls, *arguments):
        return 5


class NoException:
    """isinstance() says that it is a ZeroDivisionError."""

    __class__ = property(lambda self: ZeroDivisionError)


def some_traceback():
    try:
        raise KeyError
    except KeyError as error:
        return error.__traceback__


@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature of throw")
@pytest.mark.parametrize("with_traceback", [False, True])
def test_what_is_no_exception_is_not_thrown(impl, loop, with_traceback):
    """Whatever its class says, and whatever an exception's class makes."""
    rest = (some_traceback(),) if with_traceback else ()
    with pytest.raises(TypeError, match="should have returned an instance of BaseException, not int"):
        impl.Future(loop=loop).__await__().throw(MadeOtherwise, None, *rest)
    value = NoException()
    with pytest.raises(ZeroDivisionError) as caught:
        impl.Future(loop=loop).__await__().throw(ZeroDivisionError, value, *rest)
    assert type(caught.value) is ZeroDivisionError and caught.value.args[0] is value
