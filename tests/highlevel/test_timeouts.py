"""asyncio.Timeout's class and attributes, timeout() and timeout_at(): the compiled ones do what asyncio's own do."""

import asyncio
import copy
import fractions
import gc
import inspect
import pickle
import weakref

import pytest
from support.comparing import BOTH, description, outcome, same_on_both, turns
from support.stepping import Clock

import hotloop.asyncio


def test_class_is_a_subclass_of_asyncios():
    own, compiled = asyncio.Timeout, hotloop.asyncio.Timeout
    assert issubclass(compiled, own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert getattr(compiled, "__final__", None) == getattr(own, "__final__", None)
    assert inspect.signature(compiled) == inspect.signature(own)


@pytest.mark.parametrize("name", ["timeout", "timeout_at", "wait_for"])
def test_functions_look_like_asyncios(name):
    own, compiled = (getattr(module, name) for module in BOTH)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__code__", "__annotations__"):
        assert getattr(compiled, attribute) == getattr(own, attribute)
    assert inspect.signature(compiled) == inspect.signature(own)
    assert inspect.iscoroutinefunction(compiled) == inspect.iscoroutinefunction(own)


def test_what_makes_timeouts_makes_those_of_its_module(loop):
    async def make(module):
        made = [
            module.timeout(5),
            module.timeout(delay=5),
            module.timeout(None),
            module.timeout(fractions.Fraction(1, 2)),
            module.timeout_at(5),
            module.timeout_at(when=None),
            module.Timeout(5),
        ]
        return [type(timeout) is module.Timeout and isinstance(timeout, asyncio.Timeout) for timeout in made]

    assert all(same_on_both(loop, make))


def test_odd_arguments(loop):
    async def make(module):
        found = []
        for name in ("timeout", "timeout_at", "Timeout"):
            function = getattr(module, name)
            for arguments in [(), (1, 2), ("x",), (b"",), ([],)]:
                found.append(str(outcome(function, *arguments)))
            for keywords in [{"delay": None}, {"when": 5}, {"delay": 1, "when": 2}, {"other": 1}]:
                found.append(str(outcome(function, **keywords)))
        return found

    same_on_both(loop, make)
    assert outcome(asyncio.timeout, 1) == outcome(hotloop.asyncio.timeout, 1)  # no running event loop
    assert outcome(asyncio.timeout, None) == outcome(hotloop.asyncio.timeout, None)


def test_attributes_are_there_when_asyncios_are(loop):
    names = ("_state", "_timeout_handler", "_task", "_when", "_cancelling")

    async def use(module):
        timeout = module.Timeout.__new__(module.Timeout)
        found = [[hasattr(timeout, name) for name in names]]
        timeout.__init__(5)
        found.append([hasattr(timeout, name) for name in names])
        found.append(outcome(timeout.__init__))
        timeout._when = None
        async with timeout:
            found.append([hasattr(timeout, name) for name in names])
            found.append((timeout._task is asyncio.current_task(), timeout._cancelling, timeout._timeout_handler))
        return [*found, str(timeout), timeout._state.name]

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["_state", "_timeout_handler", "_task", "_when", "_cancelling"])
@pytest.mark.parametrize("change", ["delete", "replace"])
@pytest.mark.parametrize("stage", ["before", "within", "expiring"])
def test_attributes_that_a_program_deletes_or_replaces(loop, name, change, stage):
    async def use(module):
        found = []

        def spoil(timeout):
            if change == "replace":
                setattr(timeout, name, "odd")
            elif hasattr(timeout, name):
                delattr(timeout, name)

        timeout = module.timeout(-1 if stage == "expiring" else 100)
        if stage == "before":
            spoil(timeout)
        handler = None
        try:
            async with timeout:
                handler = getattr(timeout, "_timeout_handler", None)
                if stage == "expiring":
                    try:
                        await turns(3)
                    except asyncio.CancelledError:
                        spoil(timeout)
                        raise
                elif stage == "within":
                    spoil(timeout)
                for act in (timeout.expired, timeout.when, lambda: timeout.reschedule(50), lambda: repr(timeout)[:9]):
                    found.append(outcome(act))
        except BaseException as error:
            found.append(description(error))
        found.append([hasattr(timeout, each) for each in ("_state", "_timeout_handler", "_when", "_cancelling")])
        found.append(outcome(timeout.expired))
        asyncio.current_task().uncancel()
        for each in (handler, getattr(timeout, "_timeout_handler", None)):
            if isinstance(each, asyncio.Handle):
                each.cancel()
        return found

    Clock.replacing_time_of(loop)
    same_on_both(loop, use)


def test_copies_and_pickles():
    found = []
    for module in BOTH:
        for duplicate in (copy.copy, lambda each: pickle.loads(pickle.dumps(each))):
            timeout = module.Timeout(5)
            timeout.mark = "kept"
            other = duplicate(timeout)
            assert type(other) is type(timeout)
            found.append((str(other), other.mark, other.when(), hasattr(other, "_cancelling")))
    assert found[:2] == found[2:]


def test_unawaited_is_reported(loop):
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Timeout\.__aenter__' was never awaited"):
        hotloop.asyncio.Timeout(5).__aenter__()
        gc.collect()


def test_nothing_keeps_a_timeout(loop):
    async def use(module):
        timeout = module.timeout(100)
        known = weakref.ref(timeout)
        async with timeout:
            pass
        del timeout
        other = module.timeout(100)
        entered = weakref.ref(other)
        await other.__aenter__()
        other._timeout_handler.cancel()
        other.itself = other
        del other
        gc.collect()
        await turns(2)
        return known() is None, entered() is None

    assert same_on_both(loop, use) == (True, True)
