"""Handle and TimerHandle: the whole surface of asyncio's, in and out of debug mode."""

import asyncio
import contextvars
import sys
import weakref

import pytest
from implementations import missing_names
from stepping import run_once


def callback(*args):
    return args


def test_p21_isinstance(impl, loop):
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
    assert "callback('argument')" in repr(soon)  # what it was is kept, as text
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
