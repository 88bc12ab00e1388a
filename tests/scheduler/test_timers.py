"""call_later() and call_at(): when timers run, in which order, and the effects of cancelling them."""

import asyncio
import contextlib
import contextvars
import gc
import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest
from support.interpreter import limits_memory
from support.stepping import Clock, run_once


@pytest.fixture
def clock(loop):
    return Clock.replacing_time_of(loop)


def test_timers_run_by_deadline(loop, clock):
    seen = []
    delays = [number / 10 for number in range(1, 200)]
    random.Random(1).shuffle(delays)
    for delay in delays:
        loop.call_later(delay, seen.append, delay)
    clock.advance(3600)
    run_once(loop)
    assert seen == sorted(delays)


class InterruptedDeadline(float):
    """Ctrl-C comes while the loop compares it, once."""

    interrupted = True

    def compare(self, compare, other):
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return compare(self, other)

    def __le__(self, other):
        return self.compare(float.__le__, other)

    def __ge__(self, other):
        return self.compare(float.__ge__, other)


def test_an_interrupt_between_two_timers_loses_neither(loop, clock):
    seen = []
    deadline = InterruptedDeadline(clock.now + 3)
    loop.call_at(clock.now + 1, seen.append, 1)
    loop.call_at(clock.now + 2, seen.append, "cancelled").cancel()
    loop.call_at(deadline, seen.append, 3)
    clock.advance(10)
    deadline.interrupted = False
    with contextlib.suppress(KeyboardInterrupt):  # the compiled loop compares without Python code
        run_once(loop)
    run_once(loop, 2)
    assert seen == [1, 3]


@pytest.mark.only("c", "python", reason="asyncio's heap gives equal deadlines no order")
def test_equal_deadlines_run_in_the_order_they_were_set(loop, clock):
    seen = []
    for number in range(300):
        loop.call_at(clock.now + 1 + number % 3, seen.append, (number % 3, number))
    clock.advance(10)
    run_once(loop)
    assert seen == sorted(seen)
    assert len(seen) == 300


@pytest.mark.only("c", "python", reason="with this resolution asyncio's timers are late")
def test_deadlines_on_both_sides_of_zero(loop, clock):
    """A clock may show any time."""
    loop._clock_resolution = 0
    clock.now = -1e6
    seen = []
    deadlines = [-5e-324, 0.0, 5e-324, -1.0, 1.0, -1.5, 1.5, -1e5, 1e5, 1e-300, -1e-300, 0.25, -0.25]
    for deadline in deadlines:
        loop.call_at(deadline, seen.append, deadline)
    for number, deadline in enumerate(sorted(deadlines)):
        clock.now = math.nextafter(deadline, -math.inf)
        run_once(loop)
        assert len(seen) == number
        clock.now = deadline
        run_once(loop)
        assert seen == sorted(deadlines)[: number + 1]


@pytest.mark.only("c", "python", reason="asyncio's heap gives equal deadlines no order")
def test_both_zeros_are_equal_deadlines(loop, clock):
    clock.now = -1.0
    seen = []
    for number in range(20):
        loop.call_at(-0.0 if number % 3 else 0.0, seen.append, number)
    clock.now = 0.0
    run_once(loop)
    assert seen == list(range(20))


def test_a_timer_runs_when_its_time_has_come_and_not_before(loop, clock):
    seen = []
    loop.call_at(clock.now + 1.0, seen.append, "due")
    run_once(loop, 3)
    clock.advance(0.5)
    run_once(loop, 3)
    clock.advance(0.499999)
    run_once(loop, 3)
    assert seen == []
    clock.advance(0.000002)
    run_once(loop)
    assert seen == ["due"]


def test_due_timers_run_after_what_was_queued_before(loop, clock):
    seen = []
    loop.call_later(1, seen.append, "timer")
    loop.call_soon(seen.append, "queued")
    clock.advance(2)
    run_once(loop)
    assert seen == ["queued", "timer"]


@pytest.mark.parametrize("delay", [0, 0.0, -1, -0.5, -math.inf], ids=repr)
def test_no_delay_or_a_negative_one_runs_in_the_next_turn(loop, clock, delay):
    seen = []
    loop.call_later(delay, seen.append, "ran")
    assert seen == []
    run_once(loop)
    assert seen == ["ran"]


def test_a_timer_set_by_a_timer_waits_for_the_next_turn(loop, clock):
    seen = []

    def nested():
        seen.append("first")
        loop.call_later(0, seen.append, "second")

    loop.call_later(0, nested)
    run_once(loop)
    assert seen == ["first"]
    run_once(loop)
    assert seen == ["first", "second"]


@pytest.mark.parametrize("delay", [1, True, 0.25])
def test_delays_of_any_real_type(loop, clock, delay):
    seen = []
    handle = loop.call_later(delay, seen.append, "ran")
    assert handle.when() == clock.now + delay
    clock.advance(float(delay))
    run_once(loop)
    assert seen == ["ran"]


def test_fractions_are_numbers_too(loop, clock):
    seen = []
    handle = loop.call_at(Fraction(20001, 20), seen.append, "ran")
    assert float(handle.when()) == 1000.05
    clock.advance(0.1)
    run_once(loop)
    assert seen == ["ran"]


@pytest.mark.parametrize(
    ("now", "delay"), [(5, 1), (Fraction(1, 3), Fraction(1, 3)), (Decimal("0.1"), Decimal("0.2")), (5, 0.5)], ids=repr
)
def test_a_deadline_has_the_type_that_clock_and_delay_give_it(loop, now, delay):
    seen = []
    clock = [now]
    loop.time = lambda: clock[0]
    handle = loop.call_later(delay, seen.append, "ran")
    assert handle.when() == now + delay and type(handle.when()) is type(now + delay)
    clock[0] += delay
    if isinstance(now, Decimal):
        handle.cancel()  # asyncio's loop cannot run on this clock: it adds a float, the clock's resolution
    else:
        run_once(loop)
        assert seen == ["ran"]
    del loop.time


@pytest.mark.parametrize("delay", [1e9, 1e300, math.inf], ids=repr)
def test_a_timer_in_the_far_future_never_disturbs(loop, delay):
    seen = []
    handle = loop.call_later(delay, seen.append, "never")
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert seen == []
    handle.cancel()
    run_once(loop)


def test_a_nan_delay_does_not_upset_the_other_timers(impl, loop, clock):
    """The interpreter decides whether the NaN's own timer runs; from 3.12 on the poll raises if it is the first one."""
    seen = []
    for delay in (3, 1, 2):
        loop.call_later(delay, seen.append, delay)
    handle = loop.call_later(math.nan, seen.append, "nan")
    assert math.isnan(handle.when()) or not impl.is_oracle
    handle.cancel()
    for _ in range(3):
        clock.advance(1)
        run_once(loop)
    assert seen == [1, 2, 3]


@pytest.mark.only(
    "c", "python", reason="asyncio's heap loses its order with a NaN in it, and its poll may raise ValueError"
)
def test_a_nan_deadline_is_due_at_once(loop, clock):
    seen = []
    loop.call_later(3, seen.append, 3)
    loop.call_later(math.nan, seen.append, "nan")
    loop.call_at(math.nan, seen.append, "nan")
    loop.call_later(1, seen.append, 1)
    run_once(loop)
    assert seen == ["nan", "nan"]
    clock.advance(3)
    run_once(loop)
    assert seen == ["nan", "nan", 1, 3]


def test_none_is_no_delay(loop):
    with pytest.raises(TypeError, match="delay must not be None"):
        loop.call_later(None, print)
    with pytest.raises(TypeError, match="when cannot be None"):
        loop.call_at(None, print)


def test_a_cancelled_timer_does_not_run(loop, clock):
    seen = []
    handles = [loop.call_later(number % 7, seen.append, number) for number in range(100)]
    for handle in handles[::2]:
        handle.cancel()
    assert all(handle.cancelled() for handle in handles[::2])
    assert not any(handle.cancelled() for handle in handles[1::2])
    clock.advance(10)
    run_once(loop)
    assert sorted(seen) == list(range(1, 100, 2))


def test_a_timer_cancelled_when_it_is_already_on_the_queue_does_not_run(loop, clock):
    seen = []
    loop.call_later(1, lambda: second.cancel())
    second = loop.call_later(2, seen.append, "second")
    loop.call_later(3, seen.append, "third")
    clock.advance(10)
    run_once(loop)
    assert seen == ["third"]


def test_cancelling_twice_or_after_it_ran_is_harmless(loop, clock):
    seen = []
    once = loop.call_later(1, seen.append, "ran")
    never = loop.call_later(1, seen.append, "cancelled")
    never.cancel()
    never.cancel()
    clock.advance(1)
    run_once(loop)
    once.cancel()
    never.cancel()
    once.cancel()
    assert seen == ["ran"]
    run_once(loop)
    assert loop._scheduled == []


def test_scheduled_is_a_list_of_the_handles(loop, clock):
    """Home Assistant reads `loop._scheduled` to cancel the remaining timers at the end."""
    handles = [loop.call_later(delay, print) for delay in (5, 3, 9, 1)]
    assert isinstance(loop._scheduled, list)
    assert set(loop._scheduled) == set(handles)
    assert loop._scheduled[0].when() == clock.now + 1
    for handle in list(loop._scheduled):
        assert isinstance(handle, asyncio.TimerHandle)
        handle.cancel()


def test_cancelled_timers_do_not_pile_up(loop, clock):
    """A timeout is usually cancelled long before it is due: 10,000 of them must not stay until then."""
    kept = loop.call_later(7200, print)
    for _ in range(10_000):
        loop.call_later(3600, print).cancel()
    run_once(loop)
    assert len(loop._scheduled) <= 101  # asyncio compacts beyond a hundred
    kept.cancel()


def test_random_setting_and_cancelling_keeps_the_order(loop, clock):
    generator = random.Random(2)
    seen, expected, pending = [], [], {}
    for number in range(3000):
        when = clock.now + 1 + generator.random()
        pending[number] = when, loop.call_at(when, seen.append, (when, number))
        if generator.random() < 0.6:
            _, handle = pending.pop(generator.choice(list(pending)))
            handle.cancel()
    expected = sorted((when, number) for number, (when, _) in pending.items())
    clock.advance(10)
    run_once(loop)
    assert seen == expected


def test_timers_cancelled_by_timers_in_every_position(loop, clock):
    """Removing a timer from anywhere in the heap must leave a heap."""
    for victim in range(15):
        seen = []
        handles = [loop.call_later(1 + (number * 7) % 15, seen.append, (number * 7) % 15) for number in range(15)]
        handles[victim].cancel()
        clock.advance(20)
        run_once(loop)
        assert seen == [number for number in range(15) if number != (victim * 7) % 15]


def test_timers_of_one_thread_may_be_cancelled_by_others_threads_callbacks(loop):
    import threading

    seen = []
    handle = loop.call_later(3600, seen.append, "never")
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(handle.cancel,))
    loop.call_soon(thread.start)
    loop.call_soon_threadsafe(lambda: None)
    while not handle.cancelled():
        run_once(loop)
    thread.join()
    assert seen == []


def test_a_finalizer_sets_a_timer_while_one_is_set(impl, loop):
    """Up to CPython 3.11, each place that makes a context may run the garbage collector."""
    variable = contextvars.ContextVar("variable")
    handles = []

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            handles.append(loop.call_later(1000, print))

    def rounds():
        contexts = [contextvars.Context() for _ in range(600)]  # so that the interpreter has no freed context to reuse
        for number in range(70):  # past the sizes at which a queue of timers grows
            variable.set(number)  # a context of its own for each timer
            Garbage()
            gc.set_threshold(1)
            gc.enable()
            handles.append(loop.call_later(1000, print))
            gc.disable()
            gc.collect()
        return contexts

    before = gc.get_threshold()
    gc.disable()
    try:
        # The next timers use their memory, so no allocation triggers a collection.
        another = impl.new_event_loop()
        for handle in [another.call_later(1000, print) for _ in range(1000)]:
            handle.cancel()
        del handle
        another.close()
        contextvars.copy_context().run(rounds)
    finally:
        gc.set_threshold(*before)
        gc.enable()
    assert len(handles) == 140
    assert set(loop._scheduled) >= set(handles)
    for handle in handles:
        handle.cancel()


@limits_memory
def test_no_memory_for_a_timer(impl):
    """Whichever allocation fails, a timer is either set or not, and the others are unaffected."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        """if True:
        import _testcapi, gc
        gc.disable()  # it needs memory, too
        loop = impl.new_event_loop()
        seen, handles, failures = [], [], 0
        for allocation in range(12):
            for number in range(150):
                handle = None
                _testcapi.set_nomemory(allocation, allocation + 1)
                try:
                    handle = loop.call_later(0.001, seen.append, number)
                except MemoryError:
                    failures += 1
                finally:
                    _testcapi.remove_mem_hooks()
                if handle is not None:
                    handles.append(handle)
        assert failures > 0
        assert len(loop._scheduled) == len(handles)
        for handle in handles[::3]:
            handle.cancel()
        del handles[::3]
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        assert len(seen) == len(handles), (len(seen), len(handles), failures)
        loop.close()
        """
    )


def test_timer_handles_compare_by_deadline(loop, clock):
    early, late = loop.call_later(1, print), loop.call_later(2, print)
    same = loop.call_at(early.when(), print)
    assert early < late and late > early and early <= late and late >= early
    assert early != late and early == same and early <= same and early >= same
    assert hash(early) == hash(early.when())
    assert sorted([late, early]) == [early, late]
    with pytest.raises(TypeError):
        early < 3  # noqa: B015
    assert early != 3
    for handle in (early, late, same):
        handle.cancel()


def test_timers_compare_with_asyncios_own(loop, clock):
    ours = loop.call_later(1, print)
    theirs = asyncio.TimerHandle(clock.now + 2, print, (), loop)
    assert ours < theirs and theirs > ours
    ours.cancel()


def test_sleeping_takes_at_least_its_time(impl):
    async def main():
        loop = asyncio.get_running_loop()
        for delay in (0.001, 0.0123, 0.0007):
            begin = loop.time()
            await asyncio.sleep(delay)
            assert loop.time() >= begin + delay

    impl.run(main())


@pytest.mark.promise("P18")
def test_time_is_monotonic_and_timers_are_never_early(loop):
    import time

    low, now, high = time.monotonic(), loop.time(), time.monotonic()
    assert low <= now <= high
    generator = random.Random(3)
    early = []
    remaining = 200

    def callback(handle_of):
        nonlocal remaining
        if time.monotonic() < handle_of["handle"].when():
            early.append(handle_of["handle"])
        remaining -= 1
        if not remaining:
            loop.stop()

    for _ in range(200):
        holder = {}
        holder["handle"] = loop.call_later(generator.random() / 20, callback, holder)
    loop.run_forever()
    assert early == []


@pytest.mark.promise("P18")
def test_call_later_zero_gives_a_timer_handle(loop):
    handle = loop.call_later(0, print)
    assert isinstance(handle, asyncio.TimerHandle)
    assert isinstance(handle, asyncio.Handle)
    assert handle.when() <= loop.time()
    handle.cancel()
    run_once(loop)
