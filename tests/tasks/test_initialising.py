"""Future.__init__() and Task.__init__(): their signatures; called twice, failing, or never."""

import asyncio
import contextlib
import gc
import inspect
import sys

import pytest
from support.interpreter import checks_futures

again = pytest.mark.skipif(sys.version_info >= (3, 15), reason="CPython 3.15 refuses to initialise a future twice")


def with_result(future):
    future.set_result(1)


def with_exception(future):
    future.set_exception(ZeroDivisionError)


def cancelled(future):
    future.cancel("text")


def with_callbacks(future):
    future.add_done_callback(print)
    future.add_done_callback(print)


def blocking(future):
    future._asyncio_future_blocking = True


@again
@pytest.mark.parametrize("prepare", [with_result, with_exception, cancelled, with_callbacks, blocking])
def test_a_future_begins_anew(impl, loop, prepare):
    future = impl.Future(loop=loop)
    prepare(future)
    future.__init__(loop=loop)
    assert future.get_loop() is loop
    assert (future.done(), future.cancelled(), future._callbacks) == (False, False, None)
    assert (future._result, future._exception, future._cancel_message) == (None, None, None)
    assert (future._log_traceback, future._asyncio_future_blocking) == (False, False)
    future.set_result(2)
    assert future.result() == 2


@again
@pytest.mark.only("c", reason="only compiled tasks are on the ready queue themselves")
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_task_that_gives_itself_another_loop(impl, loop, by_hand):
    async def leaves():
        with contextlib.suppress(AttributeError):
            task.__init__(other, loop=object())

    async def nothing():
        pass

    def begin():
        nonlocal task
        task = impl.Task(leaves(), loop=loop)
        if by_hand:
            loop._ready.pop()._run()

    task = None
    other = nothing()
    loop.call_soon(begin)
    for _ in range(2):
        loop.call_soon(loop.stop)
        loop.run_forever()
    other.close()
    assert task.done()


@again
@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="the collector runs between two instructions of the interpreter only"
)
@pytest.mark.only("c", reason="asyncio's own tasks have no method for a step")
def test_a_task_that_a_finalizer_begins_anew_while_its_step_is_queued(impl):
    """Up to CPython 3.11 the garbage collector may run wherever an object is made."""
    impl.run_script("""
import asyncio, contextvars, gc

class Garbage:
    def __init__(self, task):
        self.task, self.itself = task, self

    def __del__(self):
        if not self.task.done():
            self.task.__init__(asyncio.sleep(0), loop=loop, context=contextvars.Context())

class Yields:
    def __await__(self):
        yield 3

async def awaits():
    await Yields()

loop = impl.new_event_loop()
loop.set_exception_handler(lambda loop, context: None)
for threshold in range(1, 15):
    task = impl.Task(awaits(), loop=loop)
    gc.collect()
    Garbage(task)
    gc.set_threshold(threshold)
    task._step()
    gc.set_threshold(700)
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    gc.collect()
loop.close()
""")


@again
def test_a_task_begins_anew(impl, loop):
    async def returns(value):
        await asyncio.sleep(0)
        return value

    task = impl.Task(returns(1), loop=loop, name="first")
    assert loop.run_until_complete(task) == 1
    task.__init__(returns(2), loop=loop)
    assert not task.done() and task in asyncio.all_tasks(loop)
    assert loop.run_until_complete(task) == 2
    assert task not in asyncio.all_tasks(loop)


@again
def test_a_cancelled_task_begins_anew(impl, loop):
    async def waits(future):
        return await future

    task = impl.Task(waits(loop.create_future()), loop=loop)
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    awaited = loop.create_future()
    task.__init__(waits(awaited), loop=loop)
    assert task.cancelling() == 0 and not task._must_cancel and not task.cancelled()
    awaited.set_result(3)
    assert loop.run_until_complete(task) == 3


@again
def test_an_initialisation_that_finds_no_loop(impl, loop):
    class Fails:
        def get_debug(self):
            raise ZeroDivisionError

    future = impl.Future(loop=loop)
    future.set_result(1)
    with pytest.raises(ZeroDivisionError):
        future.__init__(loop=Fails())
    assert not future.done()
    with pytest.raises(TypeError):
        future.__init__(loop=loop, other=1)
    future.__init__(loop=loop)
    assert future.get_loop() is loop


def test_a_task_whose_name_cannot_be_made(impl, loop):
    class Nameless:
        def __str__(self):
            raise ZeroDivisionError

    async def main():
        pass

    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context["message"]))
    coroutine = main()
    with pytest.raises(ZeroDivisionError):
        impl.Task(coroutine, loop=loop, name=Nameless())
    gc.collect()
    assert reports == ["Task was destroyed but it is pending!"]
    coroutine.close()
    with pytest.raises(TypeError, match="a coroutine was expected"):
        impl.Task(3, loop=loop)
    gc.collect()
    assert len(reports) == 1


@checks_futures
def test_a_subclass_that_forgets_its_base(impl, loop):
    class Future(impl.Future):
        def __init__(self):
            pass

    class Task(impl.Task):
        def __init__(self):
            pass

    async def awaits(future):
        await future

    for future in (Future(), Task()):
        assert (future.done(), future.cancelled()) == (False, False)
        for call in (future.result, future.exception):
            with pytest.raises(asyncio.InvalidStateError, match="not initialized"):
                call()
        for call in (
            future.get_loop,
            lambda future=future: future.add_done_callback(print),
            lambda future=future: future.remove_done_callback(print),
            lambda future=future: next(future.__await__()),
            lambda future=future: loop.run_until_complete(awaits(future)),
        ):
            with pytest.raises(RuntimeError, match="initialized"):
                call()
        assert asyncio.isfuture(future)


@pytest.mark.only("c", reason="a coroutine cannot be given to the other tasks later")
@pytest.mark.parametrize("use", [lambda future: future._callbacks, lambda future: future.remove_done_callback(print)])
def test_a_task_without_a_context_waits_by_callback(impl, loop, use):
    """In debug mode tasks wait by callbacks."""

    class Task(impl.Task):
        def __init__(self):
            with contextlib.suppress(TypeError):
                super().__init__(3, loop=loop)

    async def awaits():
        return await future

    loop.set_debug(True)
    future = impl.Future(loop=loop)
    task = Task()
    task._coro = awaits()
    loop.call_soon(task._step)
    loop.run_until_complete(asyncio.sleep(0))
    use(future)
    future.set_result(1)
    assert loop.run_until_complete(task) == 1


@pytest.mark.skipif(sys.version_info < (3, 15), reason="CPython 3.15 refuses to initialise a future twice")
def test_initialising_twice_is_refused(impl, loop):
    future = impl.Future(loop=loop)
    with pytest.raises(RuntimeError):
        future.__init__(loop=loop)


@pytest.mark.parametrize("name", ["Future", "Task"])
def test_signature(impl, name):
    ours, own = inspect.signature(getattr(impl, name)), inspect.signature(getattr(asyncio, name))
    expected = {parameter.name: (parameter.kind, parameter.default) for parameter in own.parameters.values()}
    actual = {parameter.name: (parameter.kind, parameter.default) for parameter in ours.parameters.values()}
    if sys.version_info < (3, 12):
        actual.pop("eager_start", None)
    assert actual == expected


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="eager tasks came with CPython 3.12")
def test_an_eager_start_is_refused_before_there_are_any(impl, loop):
    coroutine = asyncio.sleep(0)
    with pytest.raises(TypeError, match="'eager_start' is an invalid keyword argument for Task"):
        impl.Task(coroutine, loop=loop, eager_start=True)
    coroutine.close()


@pytest.mark.skipif(sys.version_info >= (3, 13, 3), reason="since CPython 3.13.3 create_task() passes keywords on")
@pytest.mark.parametrize("keyword", ["eager_start", "loop"])
def test_create_task_refuses_other_keywords(loop, keyword):
    coroutine = asyncio.sleep(0)
    with pytest.raises(TypeError, match=f"create_task.. got an unexpected keyword argument '{keyword}'"):
        loop.create_task(coroutine, **{keyword: False})
    coroutine.close()
