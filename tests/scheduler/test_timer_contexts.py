"""The context of a timer: its own copy of the context it was set in, kept no longer than the timer."""

import contextvars
import gc
import sys
import weakref

import pytest
from support.garbage import without_collector
from support.stepping import Clock, run_once

# The tests give it values; a test that sets it outside of a copied context resets it.
variable = contextvars.ContextVar("variable", default="outside")

has_get_context = pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context() came with CPython 3.12")


@pytest.fixture
def clock(loop):
    return Clock.replacing_time_of(loop)


class Value:
    """A weakly referenceable value for a variable."""


def in_a_context_of_its_own(callable, *args):
    return contextvars.copy_context().run(callable, *args)


@pytest.fixture(params=["empty", "filled"])
def filled(request):
    """Runs each test twice: in a context where no variable is set, and in one where another is."""
    context = contextvars.Context()
    if request.param == "filled":
        context.run(contextvars.ContextVar("another").set, Value())
    return context


def test_timers_set_in_the_same_context_do_not_see_what_the_others_set(loop, clock, filled):
    seen = []

    def callback(number):
        seen.append((number, variable.get()))
        variable.set(number)
        assert variable.get() == number

    def schedule():
        for number in range(5):
            loop.call_at(clock.now + number, callback, number)

    filled.run(schedule)
    clock.advance(10)
    run_once(loop)
    assert seen == [(number, "outside") for number in range(5)]
    assert variable.get() == "outside" and variable not in filled


def test_timers_set_by_a_timer_see_what_it_has_set(loop, clock, filled):
    seen = []

    def first():
        variable.set("first")
        for _ in range(2):
            loop.call_later(1, lambda: seen.append(variable.get()))
        variable.set("later")

    def schedule():
        loop.call_later(1, first)
        loop.call_later(3, lambda: seen.append(variable.get()))

    filled.run(schedule)
    for _ in range(3):
        clock.advance(1)
        run_once(loop)
    assert seen == ["first", "first", "outside"]


def test_a_timer_sees_the_values_of_when_it_was_set(loop, clock, filled):
    """Set, reset and set again, with timers in between that are cancelled and that run."""
    seen = []

    def schedule(tag):
        return loop.call_later(1, lambda: seen.append((tag, variable.get())))

    def scenario():
        schedule(1)
        token = variable.set("a")
        schedule(2)
        schedule(3).cancel()
        schedule(4)
        variable.set("b")
        schedule(5)
        variable.reset(token)
        schedule(6).cancel()
        schedule(7)
        clock.advance(2)
        run_once(loop)
        schedule(8)
        variable.set("c")
        schedule(9)
        clock.advance(2)
        run_once(loop)

    filled.run(scenario)
    assert sorted(seen) == [(1, "outside"), (2, "a"), (4, "a"), (5, "b"), (7, "outside"), (8, "outside"), (9, "c")]


def test_a_given_context_is_the_one_it_runs_in(loop, clock):
    context = contextvars.copy_context()
    for number in (1, 2):
        loop.call_later(number, variable.set, number, context=context)
    loop.call_later(3, variable.set, "its own")
    clock.advance(5)
    run_once(loop)
    assert context[variable] == 2
    assert variable.get() == "outside"


@has_get_context
def test_the_context_of_a_pending_timer_is_its_own(loop, clock, filled):
    seen = []

    def schedule():
        return [loop.call_later(1, lambda: seen.append(variable.get())) for _ in range(3)]

    first, second, third = filled.run(schedule)
    context = second.get_context()
    assert context == filled and context is not filled
    context.run(variable.set, "by hand")
    assert second.get_context() is context and second._context is context
    assert third.get_context() is not context and variable not in third.get_context()
    clock.advance(2)
    run_once(loop)
    assert seen == ["outside", "by hand", "outside"]
    assert second.get_context() is context and first.get_context() is not context


@has_get_context
def test_the_context_of_an_only_timer_is_its_own(loop, clock, filled):
    only = filled.run(loop.call_later, 1, variable.set, "only")
    context = only.get_context()
    other = filled.run(loop.call_later, 1, variable.set, "other")
    clock.advance(2)
    run_once(loop)
    assert only.get_context() is context and context[variable] == "only"
    assert other.get_context()[variable] == "other"
    assert variable not in filled


@has_get_context
def test_the_context_is_the_same_while_and_after_it_runs(loop, clock, filled):
    handles, contexts = [], []

    def callback():
        variable.set("inside")
        contexts.append(handles[len(contexts)].get_context())

    handles += filled.run(lambda: [loop.call_later(number, callback) for number in range(3)])
    clock.advance(5)
    run_once(loop)
    assert [handle.get_context() for handle in handles] == contexts
    assert all(handle.get_context() is context for handle, context in zip(handles, contexts, strict=True))
    assert all(context[variable] == "inside" for context in contexts)
    assert len({id(context) for context in contexts}) == 3


@has_get_context
def test_a_cancelled_timer_has_a_context(loop, filled):
    one, other = filled.run(lambda: [loop.call_later(3600, print) for _ in range(2)])
    one.cancel()
    assert one.get_context() == other.get_context() == filled
    assert one.get_context() is not other.get_context()
    other.cancel()


def test_a_timer_that_fires_twice_by_hand_keeps_its_context(loop):
    seen = []

    def callback():
        seen.append(variable.get())
        variable.set("again")

    handle = loop.call_later(3600, callback)
    other = loop.call_later(3600, callback)
    handle._run()
    handle._run()
    other._run()
    assert seen == ["outside", "again", "outside"]
    handle.cancel()
    other.cancel()


def value_in_a_timers_context(schedule):
    """A weak reference to a value of `variable` that only the objects made by `schedule()` can hold."""

    def scenario():
        value = Value()
        variable.set(value)
        schedule()
        return weakref.ref(value)

    return in_a_context_of_its_own(scenario)


def test_a_value_lives_as_long_as_the_timer_that_may_need_it(loop, clock):
    """The value is freed without the collector, with other timers pending before and after."""
    with without_collector():
        before = loop.call_later(3600, print)
        reference = value_in_a_timers_context(lambda: [loop.call_later(number, int) for number in (1, 2)])
        after = loop.call_later(3600, print)
        clock.advance(1)
        run_once(loop)
        assert reference() is not None
        clock.advance(1)
        run_once(loop)
        assert reference() is None
        before.cancel()
        after.cancel()


@pytest.mark.parametrize("others", [0, 1])
def test_a_value_does_not_outlive_a_timer_that_fired_last(loop, clock, others):
    with without_collector():
        kept = [loop.call_later(3600, print) for _ in range(others)]
        reference = value_in_a_timers_context(lambda: loop.call_later(1, int))
        assert reference() is not None
        clock.advance(1)
        run_once(loop)
        assert reference() is None
        for handle in kept:
            handle.cancel()


@pytest.mark.only("c", reason="the others may keep cancelled timers until they are due or many")
@pytest.mark.parametrize("others", [0, 1])
def test_a_value_does_not_outlive_a_cancelled_timer(loop, others):
    with without_collector():
        kept = [loop.call_later(3600, print) for _ in range(others)]
        reference = value_in_a_timers_context(lambda: [loop.call_later(3600, int).cancel() for _ in range(3)])
        assert reference() is None
        for handle in kept:
            handle.cancel()


@has_get_context
@pytest.mark.only("c", reason="the others may keep cancelled timers until they are due or many")
def test_a_value_does_not_outlive_a_timer_that_was_asked_for_its_context(loop):
    def schedule():
        handles = [loop.call_later(3600, int) for _ in range(2)]
        assert all(variable in handle.get_context() for handle in handles)
        for handle in handles:
            handle.cancel()

    with without_collector():
        kept = loop.call_later(3600, print)
        assert value_in_a_timers_context(schedule)() is None
        kept.cancel()


def test_a_value_does_not_outlive_a_closed_loop(impl):
    loop = impl.new_event_loop()
    reference = value_in_a_timers_context(lambda: loop.call_later(3600, int))
    loop.close()
    gc.collect()
    assert reference() is None
    assert loop.is_closed()


def test_a_cycle_through_the_context_of_timers_of_a_dropped_loop(impl):
    loops = [impl.new_event_loop()]

    def schedule():
        value = variable.get()
        value.loop = loops[0]
        value.handles = [value.loop.call_later(3600, int) for _ in range(3)]
        value.loop.call_later(3600, int)

    reference = value_in_a_timers_context(schedule)
    assert reference() is not None
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        loops.clear()
        gc.collect()
    assert reference() is None


@pytest.mark.only("c", reason="the others' timers have a context from the beginning")
def test_a_finalizer_that_sets_the_timer_for_which_a_context_is_made(impl):
    """Up to CPython 3.11 the garbage collector may run wherever an object is made."""
    impl.run_script("""
import contextvars, gc

class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        loop._scheduled = [timer]

loop = impl.new_event_loop()
# Afterwards the interpreter has no memory for contexts left over, and so lets the collector run.
contexts = [contextvars.copy_context() for _ in range(1000)]
for threshold in range(1, 15):
    timer = impl.TimerHandle.__new__(impl.TimerHandle)
    gc.collect()
    Garbage()
    gc.set_threshold(threshold)
    loop._scheduled = [timer]
    gc.set_threshold(700)
    gc.collect()
    assert loop._scheduled == [timer], threshold
    timer._scheduled = False
    assert loop._scheduled == [], threshold
loop.close()
""")
