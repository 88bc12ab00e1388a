"""loop.metrics(): counters are exact; times are never less than their certain lower bound."""

import asyncio
import dataclasses
import functools
import itertools
import selectors
import threading
import time
import weakref

import hypothesis.strategies as st
import pytest
from hypothesis import given
from support.nesting import nested
from support.stepping import Clock, burn, run_once, run_until

import hotloop
from hotloop.metrics import BUCKET_BOUNDS_NS, Delays, LongestCallback, Metrics

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loop has no metrics")

MS = 1_000_000
# The loop reads another clock while it runs than the tests do.
NEARLY = 0.97


def counters(metrics):
    names = ("time_ns", "iterations", "polls", "callbacks", "task_steps", "busy_ns", "idle_ns")
    return [getattr(metrics, name) for name in names]


# -- counting ----------------------------------------------------------------------------------------------------------


@given(
    plain=st.integers(0, 5), cancelled=st.integers(0, 5), failing=st.integers(0, 3), steps=st.lists(st.integers(1, 5))
)
def test_callbacks_and_task_steps_are_counted_exactly(impl, plain, cancelled, failing, steps):
    calls = {"callbacks": 0, "steps": 0}

    def callback(fails=False):
        calls["callbacks"] += 1
        if fails:
            raise ValueError

    async def task(count):
        for _ in range(count):
            calls["steps"] += 1
            await asyncio.sleep(0)
        calls["steps"] += 1

    loop = impl.new_event_loop()
    loop.set_exception_handler(lambda _, context: None)
    try:
        before = loop.metrics()
        for count in steps:
            loop.create_task(task(count))
        for _ in range(plain):
            loop.call_soon(callback)
        for _ in range(failing):
            loop.call_soon(callback, True)
        for _ in range(cancelled):
            loop.call_soon(callback).cancel()
        # The tasks have no waiters, so only their steps run.
        run_once(loop, max(steps, default=0) + 1)
        happened = loop.metrics() - before
    finally:
        loop.close()
    assert calls == {"callbacks": plain + failing, "steps": sum(steps) + len(steps)}
    assert happened.task_steps == calls["steps"]
    assert happened.callbacks == calls["callbacks"] + calls["steps"]


@pytest.mark.parametrize("debug", [False, True])
def test_the_counters_of_a_scripted_program(loop, debug):
    loop.set_debug(debug)
    called = []

    async def three_steps():
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    before = loop.metrics()
    loop.create_task(three_steps())
    for _ in range(4):
        loop.call_soon(called.append, 1)
    loop.call_soon(called.append, 2).cancel()
    run_once(loop, 4)
    happened = loop.metrics() - before
    assert called == [1] * 4
    assert happened.task_steps == 3
    assert happened.callbacks == 7
    # The fourth iteration finds nothing to run.
    assert (happened.iterations, happened.polls) == (3, 4)
    assert happened.scheduling_delay.count == 3


def test_a_handle_that_is_cancelled_on_the_queue_is_not_counted(loop):
    handles = []
    before = loop.metrics()
    loop.call_soon(lambda: handles[0].cancel())
    handles.append(loop.call_soon(int))
    loop.call_soon(int).cancel()
    run_once(loop)
    assert (loop.metrics() - before).callbacks == 1


def test_callbacks_are_counted_while_they_are_not_timed(loop):
    """After a slice of short callbacks they are not timed: the loop does not read the clock for each."""
    called = [0]
    batches = 200

    def callback():
        called[0] += 1

    def batch(left):
        for _ in range(100):
            loop.call_soon(callback)
        for _ in range(10):
            loop.call_soon(callback).cancel()
        loop.call_soon(batch, left - 1) if left > 1 else loop.stop()

    before = loop.metrics()
    loop.call_soon(batch, batches)
    loop.run_forever()
    run_once(loop)
    happened = loop.metrics() - before
    assert called == [100 * batches]
    assert happened.callbacks == 101 * batches
    assert happened.scheduling_delay.count == happened.iterations == batches + 1


def test_an_eager_start_is_a_step_and_no_callback(loop, impl):
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("tasks start eagerly since Python 3.12")

    async def step():
        pass

    def start():
        impl.Task(step(), loop=loop, eager_start=True)

    before = loop.metrics()
    loop.call_soon(start)
    run_once(loop)
    happened = loop.metrics() - before
    assert (happened.callbacks, happened.task_steps) == (1, 1)


def test_the_callback_that_asks_is_counted(loop):
    seen = []
    loop.call_soon(int)
    loop.call_soon(lambda: seen.append(loop.metrics().callbacks))
    before = loop.metrics().callbacks
    run_once(loop)
    assert seen == [before + 2]


def test_gauges_are_of_the_moment(loop):
    timers = [loop.call_later(3600, int) for _ in range(3)]
    timers[0].cancel()
    loop.call_soon(int)
    metrics = loop.metrics()
    assert (metrics.ready, metrics.timers) == (1, 2)
    for timer in timers:
        timer.cancel()
    run_once(loop)
    metrics = loop.metrics()
    assert (metrics.ready, metrics.timers) == (0, 0)


# -- time --------------------------------------------------------------------------------------------------------------


def test_waiting_is_idle_and_working_is_busy(loop):
    before = loop.metrics()
    loop.call_soon(burn, 0.03)
    loop.call_later(0.08, loop.stop)
    loop.run_forever()
    happened = loop.metrics() - before
    assert happened.busy_ns >= NEARLY * 30 * MS
    # The part of the 80 ms without work was spent waiting.
    assert happened.idle_ns + happened.busy_ns >= NEARLY * 80 * MS
    assert happened.idle_ns <= happened.time_ns
    assert (happened.idle_ns + happened.busy_ns) * NEARLY <= happened.time_ns
    assert 0 < happened.utilization <= 1


def test_a_loop_that_does_not_run_is_neither(loop):
    run_once(loop)
    before = loop.metrics()
    burn(0.02)
    happened = loop.metrics() - before
    assert happened.time_ns >= 20 * MS
    assert happened.busy_ns == happened.idle_ns == 0


def test_a_callback_sees_the_time_that_it_has_taken_so_far(loop):
    seen = []

    def callback():
        seen.append(loop.metrics())
        burn(0.02)
        seen.append(loop.metrics())

    loop.call_soon(callback)
    run_once(loop)
    seen.append(loop.metrics())
    assert (seen[1] - seen[0]).busy_ns >= NEARLY * 20 * MS
    assert seen[2].busy_ns >= seen[1].busy_ns


def test_another_thread_sees_a_loop_that_waits(loop):
    seen = []

    def watch():
        while loop._progress() != -1:
            pass
        first = loop.metrics()
        burn(0.02)
        while (loop.metrics() - first).idle_ns < NEARLY * 20 * MS:
            pass
        seen.append(True)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=watch)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert seen


# -- delays ------------------------------------------------------------------------------------------------------------


def test_what_waits_behind_a_callback_that_blocks_is_delayed(loop):
    run_once(loop)
    before = loop.metrics()
    loop.call_soon(burn, 0.03)
    for _ in range(3):
        loop.call_soon(int)
    run_once(loop)
    delay = (loop.metrics() - before).scheduling_delay
    assert delay.count == 1
    assert delay.maximum_ns >= NEARLY * 30 * MS
    assert delay.total_ns >= NEARLY * 30 * MS
    assert [bound for bound, count in zip(BUCKET_BOUNDS_NS, delay.buckets, strict=False) if count] > [16 * MS]


def test_a_long_batch_behind_short_ones_is_not_averaged_away(loop):
    """All callbacks are in one slice, which begins with the run's first poll."""
    left = [5]

    def chain():
        left[0] -= 1
        loop.call_soon(chain) if left[0] else loop.call_soon(last)

    def last():
        burn(0.03)
        loop.stop()

    before = loop.metrics()
    loop.call_soon(chain)
    loop.run_forever()
    happened = loop.metrics() - before
    delay = happened.scheduling_delay
    assert delay.count == 6
    assert delay.maximum_ns >= NEARLY * 30 * MS
    # Nothing is counted twice.
    assert delay.total_ns <= happened.busy_ns / NEARLY


def test_a_timer_that_could_not_be_looked_at_is_late(loop):

    def block():
        loop.call_later(0.001, loop.stop)
        burn(0.03)

    before = loop.metrics()
    loop.call_soon(block)
    loop.run_forever()
    lateness = (loop.metrics() - before).timer_lateness
    assert lateness.count == 1
    assert lateness.maximum_ns >= NEARLY * 29 * MS


def test_a_timer_that_was_due_when_it_was_set_is_not_late(loop):
    loop.call_at(0, loop.stop)
    before = loop.metrics()
    loop.run_forever()
    happened = loop.metrics() - before
    assert happened.timer_lateness.count == 1
    # The lateness does not count from the start of the machine.
    assert happened.timer_lateness.maximum_ns <= happened.time_ns


# -- the longest callback ----------------------------------------------------------------------------------------------


def blocks(seconds=0.01):
    burn(seconds)


def test_short_callbacks_leave_no_record(loop):
    assert loop.metrics().longest_callback is None


def test_the_longest_callback_is_named(loop):
    loop.call_soon(functools.partial(functools.partial(blocks), 0.05))
    run_once(loop)
    loop.call_soon(blocks, 0.001)
    run_once(loop)
    longest = loop.metrics().longest_callback
    assert longest.duration_ns >= NEARLY * 50 * MS
    assert dataclasses.replace(longest, duration_ns=0) == LongestCallback(
        0, 1, "blocks", blocks.__code__.co_filename, blocks.__code__.co_firstlineno, None
    )


def test_the_longest_step_is_named_after_its_coroutine_and_task(loop):
    async def slow():
        await asyncio.sleep(0)
        burn(0.05)

    loop.run_until_complete(loop.create_task(slow(), name="the slow one"))
    longest = loop.metrics().longest_callback
    assert longest.name == slow.__qualname__
    assert (longest.file, longest.line) == (slow.__code__.co_filename, slow.__code__.co_firstlineno)
    assert longest.task == "the slow one"


def test_the_longest_callback_ends_debug_mode(loop):
    loop.set_debug(True)
    loop.slow_callback_duration = 3600

    def slow():
        burn(0.05)
        loop.set_debug(False)

    run_once(loop, 3)
    loop.call_soon(slow)
    run_once(loop)
    longest = loop.metrics().longest_callback
    assert (longest.candidates, longest.name) == (1, slow.__qualname__)


def test_a_failing_callback_may_be_the_longest(loop):
    def fails():
        burn(0.01)
        raise ValueError

    loop.set_exception_handler(lambda _, context: None)
    loop.call_soon(fails)
    run_once(loop)
    assert loop.metrics().longest_callback.name == fails.__qualname__


def test_nothing_is_kept_alive_by_the_record(loop):
    class Argument:
        pass

    argument = Argument()
    gone = weakref.ref(argument)
    loop.call_soon(lambda _: burn(0.01), argument)
    run_once(loop)
    del argument
    assert loop.metrics().longest_callback is not None
    assert gone() is None


def test_one_of_many_short_callbacks_is_not_named_at_a_venture(loop):
    """After slices of short callbacks no callback is timed: only their total time is known."""
    remaining = [3000]

    def short():
        remaining[0] -= 1
        if not remaining[0]:
            loop.stop()

    for _ in range(2):
        remaining[0] = 3000
        for _ in range(3000):
            loop.call_soon(short)
        loop.run_forever()
        loop.call_soon(int)
        run_once(loop)
    longest = loop.metrics().longest_callback
    assert longest is None or (longest.name is None) == (longest.candidates > 1)


def test_one_of_many_that_is_long_again_is_named(loop):
    """Once the loop knows that one of many was long, but not which, it times each for a while."""

    def short():
        pass

    def lasting(seconds):
        burn(seconds)

    def turn(left, seconds, done):
        for _ in range(500):
            loop.call_soon(short)
        if left == 5:
            loop.call_soon(lasting, seconds)
        if left:
            loop.call_soon(turn, left - 1, seconds, done)
        else:
            done.set_result(None)

    async def main():
        seconds = 0.002
        for _ in range(10):
            done = loop.create_future()
            turn(10, seconds, done)
            await done
            # Longer than any delay that the machine caused in the meantime.
            seconds *= 2
            longest = loop.metrics().longest_callback
            if longest.candidates == 1 and longest.name.endswith("lasting"):
                return True
        return False

    assert loop.run_until_complete(main())


# -- loops that are not run as usual -----------------------------------------------------------------------------------


def assert_consistent(loop, snapshots):
    for earlier, later in itertools.pairwise(snapshots):
        difference = later - earlier
        assert min(counters(difference)) >= 0
        for delays in (difference.scheduling_delay, difference.timer_lateness):
            assert delays.total_ns >= 0
            assert sum(delays.buckets) == delays.count >= 0


def test_a_loop_run_inside_a_callback(loop):
    snapshots = []

    async def inner():
        for _ in range(3):
            snapshots.append(loop.metrics())
            await asyncio.sleep(0.001)

    def callback():
        snapshots.append(loop.metrics())
        nested(loop, inner())
        snapshots.append(loop.metrics())

    before = loop.metrics()
    loop.call_soon(callback)
    loop.call_soon(int)
    run_until(loop, lambda: len(snapshots) == 5)
    snapshots.append(loop.metrics())
    assert_consistent(loop, snapshots)
    happened = snapshots[-1] - before
    assert happened.idle_ns + happened.busy_ns <= happened.time_ns / NEARLY


def test_iterations_run_by_hand(loop):
    """A program that has replaced run_forever() runs them, as nest_asyncio does."""
    before = loop.metrics()
    for _ in range(3):
        loop.call_soon(int)
        burn(0.01)
        loop._run_once()
    happened = loop.metrics() - before
    assert (happened.callbacks, happened.iterations) == (3, 3)
    assert happened.busy_ns + 30 * MS <= happened.time_ns


def test_a_replaced_clock(loop):
    clock = Clock.replacing_time_of(loop)
    snapshots = [loop.metrics()]
    loop.call_later(10, int)
    for _ in range(3):
        clock.advance(5)
        run_once(loop)
        snapshots.append(loop.metrics())
    assert_consistent(loop, snapshots)
    assert (snapshots[-1] - snapshots[0]).timer_lateness.count == 1


def test_a_loop_that_is_left_by_an_exception(loop):
    snapshots = [loop.metrics()]

    def leave():
        burn(0.01)
        raise SystemExit

    for _ in range(2):
        loop.call_soon(leave)
        loop.call_soon(int)
        with pytest.raises(SystemExit):
            loop.run_forever()
        snapshots.append(loop.metrics())
        run_once(loop)
    snapshots.append(loop.metrics())
    assert_consistent(loop, snapshots)
    happened = snapshots[-1] - snapshots[0]
    assert happened.callbacks == 4
    assert happened.busy_ns >= NEARLY * 20 * MS


def test_a_selector_of_the_standard_library(impl):
    loop = impl.EventLoop(selectors.SelectSelector())
    try:
        before = loop.metrics()
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        happened = loop.metrics() - before
    finally:
        loop.close()
    assert happened.callbacks == 1
    assert happened.idle_ns + happened.busy_ns >= NEARLY * 10 * MS
    assert happened.polls >= 1


def test_a_closed_loop_still_answers(impl):
    loop = impl.new_event_loop()
    loop.call_soon(int)
    run_once(loop)
    loop.close()
    metrics = loop.metrics()
    assert (metrics.callbacks, metrics.ready, metrics.timers, metrics.watched) == (1, 0, 0, {})


# -- subtracting -------------------------------------------------------------------------------------------------------

durations = st.integers(0, 1 << 40)


def delays_of(samples):
    buckets = [0] * (len(BUCKET_BOUNDS_NS) + 1)
    for sample in samples:
        buckets[sum(sample > bound for bound in BUCKET_BOUNDS_NS)] += 1
    return Delays(len(samples), sum(samples), max(samples, default=0), tuple(buckets))


@given(first=st.lists(durations), second=st.lists(durations))
def test_the_difference_of_delays_is_that_of_the_samples_between(first, second):
    difference = delays_of(first + second) - delays_of(first)
    exact = delays_of(second)
    assert (difference.count, difference.total_ns, difference.buckets) == (exact.count, exact.total_ns, exact.buckets)
    assert difference.mean_ns == exact.mean_ns
    assert difference.maximum_ns >= exact.maximum_ns
    if max(second, default=0) > max(first, default=0):
        assert difference.maximum_ns == exact.maximum_ns
    if exact.maximum_ns:
        assert difference.maximum_ns <= max(2 * exact.maximum_ns, BUCKET_BOUNDS_NS[0]) or exact.buckets[-1]
    if not second:
        assert difference.maximum_ns == 0


def test_snapshots_subtract_only_in_their_order(loop):
    first = loop.metrics()
    loop.call_soon(int)
    run_once(loop)
    second = loop.metrics()
    assert (second - first).callbacks == 1
    with pytest.raises(ValueError, match="later"):
        first - second
    with pytest.raises(TypeError):
        second - 1
    with pytest.raises(TypeError):
        second.scheduling_delay - 1


def test_a_snapshot_cannot_be_changed(loop):
    metrics = loop.metrics()
    assert type(metrics) is Metrics is hotloop.Metrics
    with pytest.raises(dataclasses.FrozenInstanceError):
        metrics.callbacks = 1
    assert isinstance(hash(metrics), int)
    assert dataclasses.asdict(metrics)["callbacks"] == metrics.callbacks


def test_the_time_of_a_snapshot_is_that_of_the_monotonic_clock(loop):
    before = time.monotonic_ns()
    taken = loop.metrics().time_ns
    assert before <= taken <= time.monotonic_ns()


def test_buckets_count_up_to_their_bound_included(loop):
    """The counted delays are those that the loop has measured."""
    for _ in range(50):
        loop.call_soon(int)
        run_once(loop)
    for delays in (loop.metrics().scheduling_delay, loop.metrics().timer_lateness):
        assert sum(delays.buckets) == delays.count
        assert len(delays.buckets) == len(BUCKET_BOUNDS_NS) + 1
        highest = max((index for index, count in enumerate(delays.buckets) if count), default=None)
        if highest is not None:
            assert delays.maximum_ns <= (*BUCKET_BOUNDS_NS, delays.maximum_ns)[highest]
