"""Compiled functions' coroutines that are never awaited cause the warnings that asyncio's own cause."""

import contextlib
import gc
import inspect
import sys
import warnings

import pytest
from support.comparing import BOTH, description

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


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


@pytest.mark.parametrize("collected", [False, True])
def test_a_coroutine_that_the_warning_keeps_can_be_awaited(loop, aio, collected):
    """A recorded warning has the coroutine as its source."""

    def drop():
        queue = aio.Queue()
        queue.put_nowait("item")
        queue.coroutine = queue.get() if collected else None  # a cycle, which only the garbage collector finds
        return not collected and queue.get() and None

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drop()
        gc.collect()
    [warning] = caught
    assert inspect.getcoroutinestate(warning.source) == inspect.CORO_CREATED
    assert loop.run_until_complete(warning.source) == "item"


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
        monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: caught.append(description(unraisable.exc_value)))
        queue = module.Queue()
        coroutine = queue.get()
        coroutine.send(None)
        del queue._getters
        del coroutine
        gc.collect()
        return caught

    own, compiled = (loop.run_until_complete(main(module)) for module in BOTH)
    assert [error[0] for error in own] == [error[0] for error in compiled] == ["AttributeError"]
