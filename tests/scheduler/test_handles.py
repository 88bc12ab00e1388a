"""Handle and TimerHandle: the whole surface of asyncio's, in and out of debug mode."""

import asyncio
import contextvars
import copy
import decimal
import fractions
import functools
import os
import signal
import sys
import weakref

import pytest
from support.endpoints import reports_of
from support.implementations import missing_names
from support.interpreter import limits_memory
from support.stepping import Clock, run_once


def callback(*args):
    return args


@pytest.mark.promise("P21")
def test_isinstance(impl, loop):
    soon = loop.call_soon(callback)
    later = loop.call_later(3600, callback)
    threadsafe = loop.call_soon_threadsafe(callback)
    assert isinstance(soon, asyncio.Handle) and not isinstance(soon, asyncio.TimerHandle)
    assert isinstance(later, asyncio.TimerHandle) and isinstance(later, asyncio.Handle)
    assert isinstance(threadsafe, asyncio.Handle)
    assert isinstance(soon, impl.Handle) and isinstance(later, impl.TimerHandle)
    for handle in (soon, later, threadsafe):
        handle.cancel()
    run_once(loop)


def test_made_by_hand(impl, loop):
    handle = impl.Handle(callback, (1, 2), loop)
    assert (handle._callback, handle._args, handle._loop) == (callback, (1, 2), loop)
    assert handle.cancelled() is False and handle._cancelled is False
    timer = impl.TimerHandle(12.5, callback, (1,), loop, None)
    assert (timer.when(), timer._when, timer._scheduled) == (12.5, 12.5, False)
    context = contextvars.copy_context()
    assert impl.Handle(callback, (), loop, context)._context is context
    assert impl.Handle(callback, (), loop, context=context)._context is context


def test_a_handle_made_by_hand_runs_by_hand(impl, loop):
    seen = []
    handle = impl.Handle(seen.append, ("ran",), loop)
    handle._run()
    handle._run()
    assert seen == ["ran", "ran"]


class RunsInstead:
    """No Context, but with a run() as Context has it."""

    def __init__(self):
        self.calls = []

    def run(self, function, *args):
        self.calls.append((function, args))
        return function(*args)


def add_to_done_future(loop, function, *args, context):
    future = loop.create_future()
    future.set_result(None)
    future.add_done_callback(lambda future: function(*args), context=context)


def add_to_pending_future(loop, function, *args, context):
    future = loop.create_future()
    # The first callback is stored in another way than later ones.
    for _ in range(2):
        future.add_done_callback(lambda future: function(*args), context=context)
    future.set_result(None)


WITH_CONTEXT = {
    "call_soon": lambda loop, *args, context: loop.call_soon(*args, context=context),
    "call_later": lambda loop, *args, context: loop.call_later(0, *args, context=context),
    "call_at": lambda loop, *args, context: loop.call_at(0, *args, context=context),
    "call_soon_threadsafe": lambda loop, *args, context: loop.call_soon_threadsafe(*args, context=context),
    "a done future": add_to_done_future,
    "a pending future": add_to_pending_future,
}
with_context = pytest.mark.parametrize("schedule", WITH_CONTEXT.values(), ids=WITH_CONTEXT)


@with_context
def test_an_object_with_a_run_method_is_a_context(loop, schedule):
    seen = []
    context = RunsInstead()
    schedule(loop, seen.append, "ran", context=context)
    run_once(loop)
    assert seen == ["ran"] * len(context.calls) and context.calls


@with_context
@pytest.mark.parametrize("context", [5, 0, False, ""], ids=repr)
@pytest.mark.parametrize("debug", [False, True])
def test_what_has_no_run_method_is_no_context(loop, schedule, context, debug):
    reports = []
    loop.set_debug(debug)
    loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
    schedule(loop, reports.append, "ran", context=context)
    run_once(loop)
    assert reports
    for error in reports:
        assert type(error) is AttributeError
        assert str(error) == f"'{type(context).__name__}' object has no attribute 'run'"


@with_context
@pytest.mark.parametrize("debug", [False, True])
def test_a_result_is_let_go_of_outside_of_the_context(loop, schedule, debug):
    variable = contextvars.ContextVar("variable", default="outside")
    context = contextvars.Context()
    context.run(variable.set, "inside")
    seen = []

    def called():
        result = set()
        weakref.finalize(result, lambda: seen.append(variable.get()))
        seen.append(variable.get())
        return result

    loop.set_debug(debug)
    schedule(loop, called, context=context)
    run_once(loop)
    assert seen and seen == ["inside", "outside"] * (len(seen) // 2)


def test_an_exception_from_run_goes_to_the_handler(impl, loop):
    contexts = []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    handle = impl.Handle(lambda: 1 / 0, (), loop)
    handle._run()
    assert contexts[0]["handle"] is handle
    assert type(contexts[0]["exception"]) is ZeroDivisionError
    assert contexts[0]["message"].startswith("Exception in callback test_an_exception_from_run_goes")


def test_cancelling_drops_callback_and_arguments_at_once(loop):
    class Weak:
        def __call__(self):
            pytest.fail("it was cancelled")

    for schedule in (loop.call_soon, lambda *args: loop.call_later(3600, *args)):
        target, argument = Weak(), Weak()
        references = weakref.ref(target), weakref.ref(argument)
        handle = schedule(target, argument)
        handle.cancel()
        del target, argument
        assert [reference() for reference in references] == [None, None]
        assert handle._callback is None and handle._args is None
        assert handle.cancelled() and handle._cancelled
    run_once(loop)


def test_repr(impl, loop):
    soon = loop.call_soon(callback, "argument")
    later = loop.call_later(3600, callback)
    oracle = asyncio.Handle(callback, ("argument",), loop)
    assert repr(soon) == repr(oracle)
    assert repr(later) == repr(asyncio.TimerHandle(later.when(), callback, (), loop))
    for handle in (soon, oracle, later):
        handle.cancel()
    assert repr(soon) == repr(oracle) == "<Handle cancelled>"
    assert repr(later) == f"<TimerHandle cancelled when={later.when()}>"
    run_once(loop)


def test_repr_in_debug_mode(loop):
    loop.set_debug(True)
    soon = loop.call_soon(callback, "argument")
    later = loop.call_later(3600, callback, "argument")
    line = sys._getframe().f_lineno
    assert repr(soon).startswith("<Handle callback('argument') at ")
    assert repr(soon).endswith(f"created at {__file__}:{line - 2}>")
    assert repr(later).startswith(f"<TimerHandle when={later.when()} callback('argument') at ")
    assert repr(later).endswith(f"created at {__file__}:{line - 1}>")
    before = repr(soon), repr(later)
    soon.cancel(), later.cancel()
    assert repr(soon) != before[0] and "cancelled" in repr(soon)
    assert "callback('argument')" in repr(soon)  # the handle keeps the text of its callback
    assert "callback('argument')" in repr(later) and "cancelled" in repr(later)
    run_once(loop)


@pytest.mark.parametrize("how", ["call_soon", "call_later", "call_at", "call_soon_threadsafe"])
def test_source_tracebacks_end_at_the_caller(loop, how):
    loop.set_debug(True)
    arguments = {"call_later": (3600,), "call_at": (loop.time() + 3600,)}.get(how, ())
    handle = getattr(loop, how)(*arguments, callback)
    line = sys._getframe().f_lineno - 1
    frame = handle._source_traceback[-1]
    assert (frame[0], frame[1]) == (__file__, line)
    handle.cancel()
    run_once(loop)


def test_no_source_traceback_outside_debug_mode(loop):
    handle = loop.call_soon(callback)
    assert handle._source_traceback is None
    handle.cancel()
    run_once(loop)


def test_the_source_traceback_reaches_the_exception_handler(loop):
    contexts = []
    loop.set_debug(True)
    loop.slow_callback_duration = 3600
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    handle = loop.call_soon(lambda: 1 / 0)
    run_once(loop)
    assert contexts[0]["source_traceback"] == handle._source_traceback


def test_handles_can_be_weakly_referenced(loop):
    soon, later = loop.call_soon(callback), loop.call_later(0, callback)
    references = weakref.ref(soon), weakref.ref(later)
    assert [reference() for reference in references] == [soon, later]
    del soon, later
    run_once(loop, 2)
    assert [reference() for reference in references] == [None, None]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context() came with CPython 3.12")
def test_get_context(loop):
    context = contextvars.copy_context()
    given = loop.call_soon(callback, context=context)
    copied = loop.call_soon(callback)
    assert given.get_context() is context
    assert isinstance(copied.get_context(), contextvars.Context)
    assert copied.get_context() is not context
    run_once(loop)


def test_handles_hash_and_compare_by_identity(loop):
    one, other = loop.call_soon(callback), loop.call_soon(callback)
    assert one != other and one == one
    assert len({one, other}) == 2
    run_once(loop)


def test_when_is_by_the_loops_clock(loop):
    low = loop.time()
    handle = loop.call_later(100, callback)
    assert low + 100 <= handle.when() <= loop.time() + 100
    handle.cancel()


def test_a_timer_knows_whether_it_is_scheduled(loop):
    handle = loop.call_later(3600, callback)
    assert handle._scheduled
    handle.cancel()
    ran = loop.call_later(0, callback)
    run_once(loop)
    assert not ran._scheduled


def test_every_name_of_asyncios_handles_is_there(loop):
    soon, later = loop.call_soon(callback), loop.call_later(3600, callback)
    for handle, oracle in ((soon, asyncio.Handle), (later, asyncio.TimerHandle)):
        assert missing_names(handle, oracle) == []
        handle.cancel()
    run_once(loop)


@pytest.mark.parametrize("when", [3, fractions.Fraction(1, 3), decimal.Decimal("0.1"), 0.1, 10**17 + 1])
def test_a_timer_of_any_number_equals_itself(impl, loop, when):
    timer = impl.TimerHandle(when, callback, (1,), loop)
    another = impl.TimerHandle(when, callback, (1,), loop)
    assert timer.when() == when and type(timer.when()) is type(when)
    assert timer == another and hash(timer) == hash(another)
    assert timer <= another and timer >= another and not timer < another and not timer > another
    later = impl.TimerHandle(when + 1, callback, (1,), loop)
    assert timer != later and timer < later and later > timer


@pytest.mark.parametrize("how", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_copies(loop, how):
    """A copy is another object with the handle's attributes."""
    seen = []
    handle = loop.call_later(3600, seen.append, 1) if how == "call_later" else getattr(loop, how)(seen.append, 1)
    duplicate = copy.copy(handle)
    assert type(duplicate) is type(handle) and duplicate is not handle
    for name in ("_callback", "_args", "_context", "_loop", "_cancelled", "_repr", "_source_traceback"):
        assert getattr(duplicate, name) == getattr(handle, name)
    if how == "call_later":
        assert duplicate == handle and duplicate.when() == handle.when()
    handle.cancel()
    assert not duplicate._cancelled
    run_once(loop)
    assert seen == []
    duplicate._run()
    assert seen == [1]


def test_copies_of_a_subclass(impl, loop):
    class Named(impl.Handle):
        __slots__ = ("name",)

    class Free(impl.Handle):
        pass

    named = Named(callback, (1,), loop)
    named.name = "x"
    assert copy.copy(named).name == "x"
    free = Free(callback, (1,), loop)
    free.name = "y"
    assert copy.copy(free).name == "y" and copy.copy(free)._args == (1,)


def test_a_subclass_with_class_attributes_of_the_same_names(impl, loop):
    """As on asyncio's handles, those of the instance count."""

    class Soon(impl.Handle):
        _loop = _source_traceback = _repr = None

    class Later(impl.TimerHandle):
        _loop = _source_traceback = _repr = None

    seen, reports = [], []
    loop.set_exception_handler(lambda loop, context: reports.append(type(context["exception"])))
    Soon(seen.append, (1,), loop)._run()
    Soon(seen.append, (), loop)._run()
    handle = Later(1.0, seen.append, (2,), loop)
    handle.cancel()
    assert handle.cancelled() and "Later" in repr(handle)
    assert seen == [1] and reports == [TypeError]


def test_attributes_can_be_set(loop):
    """As on asyncio's handles: the handle runs its attributes as they are then."""
    seen, reports = [], []
    loop.set_exception_handler(lambda loop, context: reports.append(type(context["exception"])))
    context = contextvars.Context()
    variable = contextvars.ContextVar("variable")

    handle = loop.call_soon(callback)
    handle._callback = lambda *args: (seen.append(args), variable.set(1))
    handle._args = [1, 2]
    handle._context = context
    assert handle._args == [1, 2]
    loop.call_soon(seen.append, "cancelled")._cancelled = True
    again = loop.call_soon(seen.append, "after all")
    again._cancelled = True
    again._cancelled = False
    assert again.cancelled() is False
    for name in ("_callback", "_args"):
        setattr(loop.call_soon(callback), name, None)
    run_once(loop)
    assert seen == [(1, 2), "after all"]
    assert context[variable] == 1
    assert reports == [TypeError, TypeError]

    handle = loop.call_soon(callback)
    handle._repr = "what it was"
    handle._source_traceback = None
    assert repr(handle) == "what it was"
    del handle
    run_once(loop)
    # The new handle may be the same object, recycled.
    handle = loop.call_soon(callback)
    assert handle._repr is None and repr(handle) != "what it was"
    handle._loop = None
    assert handle._loop is None
    run_once(loop)


def test_what_is_no_context_is_reported(loop):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
    for wrong in (None, 1, "x"):
        loop.call_soon(callback)._context = wrong
        timer = loop.call_later(-1, callback)
        timer._context = wrong
        assert timer._context is wrong
    run_once(loop, 2)
    assert len(reports) == 6
    assert {type(report) for report in reports} <= {TypeError, AttributeError}


def test_the_deadline_of_a_pending_timer_can_be_set(loop):
    clock = Clock.replacing_time_of(loop)
    seen = []
    timer = loop.call_later(1, seen.append, "later")
    timer._when = clock.now + 20
    assert timer.when() == clock.now + 20
    clock.advance(10)
    run_once(loop)
    assert seen == []
    timer._when = fractions.Fraction(clock.now)
    assert timer.when() == clock.now and type(timer.when()) is fractions.Fraction
    clock.advance(1)
    run_once(loop)
    assert seen == ["later"]
    timer._when = 1.0
    assert timer.when() == 1.0 and not timer._scheduled
    run_once(loop)
    assert seen == ["later"]


@pytest.mark.only("c", reason="a heap that programs can see does not reorder itself")
def test_pending_timers_are_put_in_order_when_their_deadlines_are_set(loop):
    clock = Clock.replacing_time_of(loop)
    seen = []
    timers = [loop.call_later(number + 1, seen.append, number) for number in range(100)]
    for timer in timers:
        timer._when = 2 * clock.now - timer.when() + 200
    with pytest.raises(TypeError):
        timers[0]._when = "soon"
    timers[50].cancel()
    clock.advance(300)
    run_once(loop)
    assert seen == [number for number in reversed(range(100)) if number != 50]
    assert len(loop._scheduled) == 0


@limits_memory
@pytest.mark.only("c", reason="in Python code any line may fail to allocate")
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork()")
@pytest.mark.parametrize("how", ["call_soon", "call_soon_threadsafe", "call_later"])
def test_no_memory_for_a_context(impl, how):
    """A callback that was accepted is called, even if there is no memory for its context when it is its turn."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        """if True:
        import _testcapi, asyncio, gc, operator, os
        gc.disable()  # it needs memory, too

        def attempt(allocation):
            loop = impl.new_event_loop()
            reports = []
            loop.set_exception_handler(lambda loop, context: reports.append(context))
            ran = bytearray(3)
            for number in range(3):
                loop.HOW(operator.setitem, ran, number, 1)
            loop.call_later(0.001, loop.stop)
            _testcapi.set_nomemory(allocation, allocation + 1)
            try:
                loop.run_forever()
            except MemoryError:
                asyncio._set_running_loop(None)  # which needs memory, too
            finally:
                _testcapi.remove_mem_hooks()
            loop.call_later(0.001, loop.stop)
            loop.run_forever()
            assert ran == bytes([1, 1, 1]) and not reports, (allocation, ran, reports)

        # In children, none of which has contexts that an earlier one has kept.
        for allocation in range(40):
            child = os.fork()
            if not child:
                attempt(allocation)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, allocation
        """.replace("HOW(", "call_later(0, " if how == "call_later" else f"{how}(")
    )


def test_methods_of_asyncios_classes_as_callbacks(loop):
    """call_soon_threadsafe(asyncio.Future.set_result, ...) is a common idiom. asyncio's compiled methods refuse the
    object, because it is of another class."""

    async def main():
        for schedule in (loop.call_soon, loop.call_soon_threadsafe, functools.partial(loop.call_later, 0)):
            future = loop.create_future()
            schedule(asyncio.Future.set_result, future, 1)
            assert await future == 1
            task = loop.create_task(asyncio.sleep(3600))
            schedule(asyncio.Task.cancel, task)
            with pytest.raises(asyncio.CancelledError):
                await task

    loop.run_until_complete(main())


def test_methods_of_asyncios_classes_as_signal_handlers(loop):
    future = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, asyncio.Future.set_result, future, 1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert loop.run_until_complete(future) == 1
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_methods_of_asyncios_classes_with_something_else(loop):
    with reports_of(loop) as reports:
        for arguments in ((), (1,), (loop,)):
            loop.call_soon(asyncio.Future.cancel, *arguments)
        run_once(loop)
    assert [type(report["exception"]) for report in reports] == [TypeError] * 3
