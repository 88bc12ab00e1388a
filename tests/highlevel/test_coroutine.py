"""The coroutine objects of compiled functions: whatever code can see of them is as with asyncio's own coroutines."""

import asyncio
import collections.abc
import contextlib
import gc
import inspect
import io
import itertools
import sys
import traceback
import types
import warnings
import weakref

import pytest
from support.comparing import BOTH
from support.same_outcome import is_debug_build

import hotloop
import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


def described(error):
    """An exception with its cause and context, comparable with another one's."""
    if error is None:
        return None
    # Which object an exception of the wrong type was thrown into decides how much the text says.
    text = str(error).removesuffix(", not str")
    return type(error).__name__, text, described(error.__cause__), described(error.__context__)


def outcome(call, *arguments):
    try:
        result = call(*arguments)
    except BaseException as error:
        return described(error)
    return "a future" if asyncio.isfuture(result) else result


# -- send(), throw() and close() in each state -------------------------------------------------------------------------


class Subject:
    """A coroutine that has to be driven by hand, and what it waits for."""

    def __init__(self, coroutine, finish):
        self.coroutine = coroutine
        self.finish = finish
        self.yielded = None

    def send(self, value):
        self.yielded = self.coroutine.send(value)
        return self.yielded

    def resolve(self):
        if self.yielded is not None and not self.yielded.done():
            self.yielded.set_result(None)

    def cancel(self):
        if self.yielded is not None:
            self.yielded.cancel()

    def state(self):
        coroutine = self.coroutine
        return (
            inspect.getcoroutinestate(coroutine),
            coroutine.cr_running,
            coroutine.cr_suspended,
            coroutine.cr_frame is None,
            coroutine.cr_await is None,
        )


def empty_queue(module):
    queue = module.Queue()
    return Subject(queue.get(), lambda: queue.put_nowait("item"))


def filled_queue(module):
    queue = module.Queue()
    queue.put_nowait("item")
    return Subject(queue.get(), lambda: None)


def full_queue(module):
    queue = module.Queue(1)
    queue.put_nowait("item")
    return Subject(queue.put("more"), queue.get_nowait)


def joined_queue(module):
    queue = module.Queue()
    queue.put_nowait("item")
    return Subject(queue.join(), queue.task_done)


def event(module):
    event = module.Event()
    return Subject(event.wait(), event.set)


def subclass(module):
    queue = type("Own", (module.Queue,), {})()
    return Subject(queue.get(), lambda: queue.put_nowait("item"))


SUBJECTS = [empty_queue, filled_queue, full_queue, joined_queue, event, subclass]

OPERATIONS = {
    "send None": lambda subject: subject.send(None),
    "send a value": lambda subject: subject.send(1),
    "throw": lambda subject: subject.coroutine.throw(ValueError("thrown")),
    "throw a class": lambda subject: subject.coroutine.throw(ValueError),
    "throw StopIteration": lambda subject: subject.coroutine.throw(StopIteration(1)),
    "throw GeneratorExit": lambda subject: subject.coroutine.throw(GeneratorExit()),
    "throw a cancellation": lambda subject: subject.coroutine.throw(asyncio.CancelledError()),
    "throw nonsense": lambda subject: subject.coroutine.throw("nonsense"),
    "throw two arguments": lambda subject: subject.coroutine.throw(ValueError, "thrown"),
    "throw nothing": lambda subject: subject.coroutine.throw(),
    "close": lambda subject: subject.coroutine.close(),
    "finish": lambda subject: subject.finish(),
    "resolve": Subject.resolve,
    "cancel": Subject.cancel,
}


def drive(loop, module, make, names):
    """What each operation gave, the state after it, and the warnings."""
    log = []

    async def main():
        subject = make(module)
        for name in names:
            log.append((name, outcome(OPERATIONS[name], subject), subject.state()))
        outcome(subject.coroutine.close)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(main())
    return log, sorted({(warning.category.__name__, str(warning.message)) for warning in caught})


@pytest.mark.parametrize("make", SUBJECTS)
def test_every_sequence_of_three_operations(loop, make):
    for names in itertools.product(OPERATIONS, repeat=3):
        own, compiled = (drive(loop, module, make, names) for module in BOTH)
        assert own == compiled


@pytest.mark.parametrize("make", SUBJECTS)
def test_longer_sequences(loop, make):
    usual = ["send None", "throw", "close", "finish", "resolve", "cancel"]
    for names in itertools.product(["send None"], usual, usual, usual, ["send None", "close"]):
        own, compiled = (drive(loop, module, make, names) for module in BOTH)
        assert own == compiled


class Spy:
    """An item of a PriorityQueue whose comparison runs code."""

    def __init__(self, call):
        self.call = call

    def __lt__(self, other):
        self.call()
        return False


def priority_queue(module, call):
    queue = module.PriorityQueue()
    for item in (Spy(lambda: None), Spy(lambda: None), Spy(lambda: None)):
        queue._queue.append(item)
    for item in queue._queue:
        item.call = call
    return queue


def test_operations_on_a_coroutine_that_runs(loop, aio):
    log = []

    def use_it():
        log.append((outcome(coroutine.send, None), outcome(coroutine.throw, ValueError()), outcome(coroutine.close)))
        log.append((inspect.getcoroutinestate(coroutine), coroutine.cr_running, coroutine.cr_suspended))

    async def main():
        nonlocal coroutine
        coroutine = priority_queue(aio, use_it).get()
        await coroutine

    coroutine = None
    loop.run_until_complete(main())
    executing = ("ValueError", "coroutine already executing", None, None)
    assert log[:2] == [(executing,) * 3, ("CORO_RUNNING", True, False)]


def test_stop_iteration_that_is_raised_inside(loop, aio):
    def stop():
        raise StopIteration("inside")

    async def main():
        with pytest.raises(RuntimeError, match=r"^coroutine raised StopIteration$") as caught:
            await priority_queue(aio, stop).get()
        return described(caught.value)

    inside = ("StopIteration", "inside", None, None)
    assert loop.run_until_complete(main()) == ("RuntimeError", "coroutine raised StopIteration", inside, inside)


class Stubborn:
    """In place of a queue's waiter: an awaitable that is not to be closed."""

    def __init__(self, goes_on):
        self.goes_on = goes_on

    def __await__(self):
        try:
            yield
        except GeneratorExit:
            if self.goes_on:
                yield
        return "ignored"


@pytest.mark.parametrize("goes_on", [True, False])
def test_close_with_an_awaitable_that_swallows_it(loop, monkeypatch, goes_on):
    """GeneratorExit is not to be ignored; where it is, close() says so, or returns what the coroutine returned."""

    async def main(module):
        queue = module.Queue()
        monkeypatch.setattr(queue, "_get_loop", lambda: types.SimpleNamespace(create_future=lambda: Waiter(goes_on)))
        coroutine = queue.get()
        coroutine.send(None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log = [outcome(coroutine.close), inspect.getcoroutinestate(coroutine)]
            log.append(outcome(coroutine.close))
        return log, [str(warning.message) for warning in caught]

    class Waiter(Stubborn):
        def cancel(self):
            return False

        def cancelled(self):
            return True

        def done(self):
            return False

    own, compiled = (loop.run_until_complete(main(module)) for module in BOTH)
    assert own == compiled


# -- awaiting ----------------------------------------------------------------------------------------------------------


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
    """In stacks, it is that of asyncio's own `await`."""

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
    assert [reference() for reference in references] == [None, None]


def test_dropped_while_it_waits(loop, aio):
    """It is closed: its waiter is no longer among the queue's."""

    async def main():
        queue = aio.Queue()
        coroutine = queue.get()
        coroutine.send(None)
        assert len(queue._getters) == 1
        del coroutine
        assert len(queue._getters) == 0

    loop.run_until_complete(main())


def test_recycled_objects_start_anew(loop, aio):
    """Names and places of a coroutine are not those of an earlier one in the same memory."""
    for _ in range(3):
        coroutine = aio.Queue().get()
        coroutine.__name__ = coroutine.__qualname__ = "named"
        coroutine.close()
        del coroutine
        coroutine = aio.Queue().get()
        assert (coroutine.__name__, coroutine.__qualname__) == ("get", "Queue.get")
        assert inspect.getcoroutinestate(coroutine) == "CORO_CREATED" and coroutine.cr_origin is None
        coroutine.close()


# -- never awaited -----------------------------------------------------------------------------------------------------


def never_awaited(make):
    """The warnings that are caused by dropping what `make` returns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
        gc.collect()
    return [(warning.category, str(warning.message), warning.filename, warning.lineno) for warning in caught]


def test_warning(loop, aio):
    line = inspect.currentframe().f_lineno + 1
    [warning] = never_awaited(lambda: aio.Queue().get() and None)
    assert warning == (RuntimeWarning, "coroutine 'Queue.get' was never awaited", __file__, line)


def test_warning_names_the_qualified_name_that_was_set(loop, aio):
    def drop():
        coroutine = aio.Queue().get()
        coroutine.__qualname__ = "mine"

    [warning] = never_awaited(drop)
    assert warning[1] == "coroutine 'mine' was never awaited"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_warning_with_its_origin(loop, depth):
    def create(module):
        return module.Queue().get()

    def through(module):
        return create(module)

    previous = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(depth)
    try:
        origins, messages = [], []
        for module in BOTH:
            coroutine = through(module)
            origins.append(coroutine.cr_origin)
            coroutine.close()
            messages.append(never_awaited(lambda module=module: through(module) and None))
    finally:
        sys.set_coroutine_origin_tracking_depth(previous)
    own, compiled = origins
    assert own == compiled and len(own) == depth and own[0][2] == "create"
    assert messages[0] == messages[1]
    assert "Coroutine created at (most recent call last)" in messages[1][0][1]


def test_no_warning_after_close_or_throw(loop, aio):
    def close():
        aio.Queue().get().close()

    def throw():
        with contextlib.suppress(ValueError):
            aio.Queue().get().throw(ValueError())

    assert never_awaited(close) == never_awaited(throw) == []


def test_warning_as_an_error_goes_to_the_unraisable_hook(loop, aio, monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: caught.append(str(unraisable.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aio.Queue().get()
        gc.collect()
    assert caught == ["coroutine 'Queue.get' was never awaited"]


def test_an_error_while_a_dropped_one_is_closed_goes_to_the_unraisable_hook(loop, monkeypatch):
    async def main(module):
        caught = []
        monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: caught.append(described(unraisable.exc_value)))
        queue = module.Queue()
        coroutine = queue.get()
        coroutine.send(None)
        del queue._getters
        del coroutine
        gc.collect()
        return caught

    own, compiled = (loop.run_until_complete(main(module)) for module in BOTH)
    assert [error[0] for error in own] == [error[0] for error in compiled] == ["AttributeError"]


# -- tracebacks --------------------------------------------------------------------------------------------------------


def test_traceback_of_an_exception_that_passes_through(loop, aio):
    """It names the program's lines; hotloop's own modules do not show up in it."""

    async def main():
        await aio.wait_for(waits(), 10)

    async def waits():
        future = loop.create_future()
        loop.call_soon(future.set_exception, ValueError("on purpose"))
        await future

    with pytest.raises(ValueError) as caught:
        loop.run_until_complete(main())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [name for name in names if name in ("main", "waits")] == ["main", "waits"]
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert is_debug_build() or not [file for file in files if file.endswith(".pyx")]


# -- debug mode, pictures and call graphs ------------------------------------------------------------------------------


def test_debug_mode(impl, aio):
    async def main():
        queue = aio.Queue()
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        await queue.put(1)
        return await task, task.get_coro().cr_origin[0][2]

    assert impl.run(main(), debug=True) == (1, "main")


def test_slow_step_in_debug_mode(impl, aio, asyncio_log):
    import time

    async def main():
        asyncio.get_running_loop().slow_callback_duration = 0.01
        await asyncio.create_task(priority_queue(aio, lambda: time.sleep(0.02)).get())

    impl.run(main(), debug=True)
    assert any("PriorityQueue.get()" in message or "Queue.get()" in message for message in asyncio_log.take())


def test_pending_task_that_is_destroyed(loop, asyncio_log):
    async def main(module):
        queue = module.Queue()
        task = asyncio.create_task(queue.get(), name="forgotten")
        await asyncio.sleep(0)
        asyncio.tasks._unregister_task(task)
        queue._getters.clear()
        del task, queue
        await asyncio.sleep(0)
        gc.collect()

    messages = []
    for module in BOTH:
        loop.run_until_complete(main(module))
        messages.append([message.partition(" wait_for")[0] for message in asyncio_log.take()])
    assert messages[0] == messages[1]
    assert "Task was destroyed but it is pending!" in messages[1][0]


@pytest.mark.only("c", reason="asyncio draws its tasks itself")
def test_format_tasks(loop):
    async def main():
        pictures = []
        for module in BOTH:
            queue, event = module.Queue(), module.Event()
            tasks = [
                asyncio.create_task(each, name=f"task {number}")
                for number, each in enumerate((queue.get(), event.wait(), nested(queue)))
            ]
            await asyncio.sleep(0)
            text = hotloop.format_tasks(loop)
            pictures.append([line for line in text.splitlines() if "test_format_tasks.<locals>.main" not in line])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return pictures

    async def nested(queue):
        return await queue.get()

    own, compiled = loop.run_until_complete(main())
    assert [without_addresses(line) for line in own] == [without_addresses(line) for line in compiled]
    assert any("queues.py" in line for line in compiled)


def without_addresses(line):
    import re

    return re.sub(r"0x[0-9a-f]+|main\(\).*", "", line)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with Python 3.14")
def test_call_graph(loop):
    async def main():
        graphs = []
        for module in BOTH:
            queue = module.Queue()
            task = asyncio.create_task(nested(queue), name="a task")
            await asyncio.sleep(0)
            graphs.append([line.strip() for line in asyncio.format_call_graph(task).splitlines()[1:]])
            graph = asyncio.capture_call_graph(task)
            assert [entry.frame.f_code.co_name for entry in graph.call_stack][-2:] == ["get", "nested"]
            task.cancel()
        assert graphs[0] == graphs[1]

    async def nested(queue):
        return await queue.get()

    loop.run_until_complete(main())
