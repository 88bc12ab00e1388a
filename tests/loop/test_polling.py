"""How long I/O and timers wait behind queued work, and how often an idle loop wakes up.

No test measures time from outside. To test a bound in time, callbacks themselves use up at least that much of it, and
the test counts callbacks: a slower machine only makes each of them longer.
"""

import resource
import sys

import pytest
from support.stepping import Clock, burn, run_once

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="counts with the resource module, which Windows lacks")

BOUND = 0.001  # seconds of queued work that I/O and timers wait at most
GRACE = 3  # turns: one that exceeds the bound, one that polls, one that runs the callbacks found


@pytest.mark.promise("P32")
def test_a_descriptor_is_looked_at_within_the_bound_while_work_is_queued(loop, pair):
    one, other = pair
    turns_after_ready = 0

    def work():
        nonlocal turns_after_ready
        burn(BOUND)
        turns_after_ready += 1
        loop.call_soon(work)

    def begin():
        other.send(b"x")
        work()

    def readable():
        loop.remove_reader(one)
        loop.stop()

    loop.add_reader(one, readable)
    # The data comes amid a busy run, not in the first iteration, which always polls.
    for _ in range(20):
        loop.call_soon(lambda: None)
    loop.call_soon(loop.call_soon, loop.call_soon, begin)
    loop.run_forever()
    assert turns_after_ready <= GRACE
    loop._ready.clear()


@pytest.mark.promise("P32")
def test_a_timer_is_run_within_the_bound_while_work_is_queued(loop):
    turns_after_due = 0
    late = []

    def work():
        nonlocal turns_after_due
        if loop.time() >= timer.when():
            turns_after_due += 1
        burn(BOUND)
        loop.call_soon(work)

    def due():
        late.append(turns_after_due)
        loop.stop()

    timer = loop.call_later(0.01, due)
    loop.call_soon(work)
    loop.run_forever()
    assert late[0] <= GRACE
    loop._ready.clear()


@pytest.mark.parametrize("others", [0, 1], ids=["no timer pending", "a timer pending"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_timer_that_is_due_when_it_is_set_does_not_wait_for_the_bound(loop, late, others):
    """asyncio runs it two turns later: the work queued in between takes less than the bound here."""
    turns = 0
    set_at = []
    ran_at = []

    def chain():
        nonlocal turns
        turns += 1
        if turns % 50 == 0:
            set_at.append(turns)
            loop.call_at(loop.time() - late, due)
        if turns < 1000:
            loop.call_soon(chain)
        else:
            loop.call_soon(loop.call_soon, loop.stop)

    def due():
        ran_at.append(turns)

    pending = [loop.call_later(3600, due) for _ in range(others)]
    loop.call_soon(chain)
    loop.run_forever()
    for handle in pending:
        handle.cancel()
    assert len(ran_at) == len(set_at)
    assert all(ran - was_set <= GRACE for ran, was_set in zip(ran_at, set_at, strict=True))


@pytest.mark.promise("P32")
def test_the_bound_follows_a_replaced_clock(loop):
    clock = Clock.replacing_time_of(loop)
    turns_after_due = []
    due = []

    def work():
        clock.advance(BOUND)
        if due:
            loop.stop()
        else:
            if clock.now >= timer.when():
                turns_after_due.append(clock.now)
            loop.call_soon(work)

    timer = loop.call_later(0.0105, due.append, True)
    loop.call_soon(work)
    loop.run_forever()
    assert len(turns_after_due) <= GRACE


@pytest.mark.promise("P32")
def test_callbacks_that_take_no_time_do_not_keep_io_away(loop, pair):
    """An endless chain of callbacks too short to measure: the loop still polls the descriptor."""
    one, other = pair
    other.send(b"x")
    turns = 0

    def chain():
        nonlocal turns
        turns += 1
        loop.call_soon(chain)

    def arm():
        loop.add_reader(one, readable)

    def readable():
        loop.remove_reader(one)
        loop.stop()

    loop.call_soon(chain)
    loop.call_soon(loop.call_soon, loop.call_soon, arm)
    loop.run_forever()
    assert turns > 0
    loop._ready.clear()


@pytest.mark.promise("P32")
def test_with_a_frozen_clock_io_is_not_kept_away(loop, pair):
    """A test clock stands still while callbacks run; a bound in time alone would never be reached."""
    one, other = pair
    Clock.replacing_time_of(loop)

    def chain():
        loop.call_soon(chain)

    def arm():
        loop.add_reader(one, readable)
        other.send(b"x")

    def readable():
        loop.remove_reader(one)
        loop.stop()

    loop.call_soon(chain)
    loop.call_soon(loop.call_soon, loop.call_soon, arm)
    loop.run_forever()
    loop._ready.clear()


@pytest.mark.promise("P32")
def test_large_batches_do_not_count_as_one_callback(loop, pair):
    """A hundred callbacks a turn, each queueing its successor: the reader runs within a bounded number of callbacks."""
    one, other = pair
    ran_after_ready = 0
    ready = False

    def work():
        nonlocal ran_after_ready
        ran_after_ready += ready
        burn(0.0001)
        loop.call_soon(work)

    def readable():
        loop.remove_reader(one)
        loop.stop()

    def send():
        nonlocal ready
        other.send(b"x")
        ready = True

    width = 100
    loop.add_reader(one, readable)
    for _ in range(width):
        loop.call_soon(work)
    loop.call_soon(loop.call_soon, loop.call_soon, send)
    loop.run_forever()
    # Each turn burns ten times the bound, so every turn must poll: as in asyncio, one batch ahead of the reader.
    assert ran_after_ready <= 2 * width
    loop._ready.clear()


@pytest.mark.promise("P32")
def test_the_first_iteration_of_a_run_polls(loop, pair):
    one, other = pair
    seen = []
    other.send(b"x")
    loop.add_reader(one, seen.append, "readable")
    for _ in range(3):
        loop.call_soon(lambda: None)
        run_once(loop)
    assert seen == ["readable"] * 3
    loop.remove_reader(one)


def test_io_callbacks_run_before_due_timers_and_after_what_was_queued(loop, pair):
    one, other = pair
    clock = Clock.replacing_time_of(loop)
    seen = []
    other.send(b"x")
    loop.call_later(1, seen.append, "timer")
    loop.add_reader(one, seen.append, "reader")
    loop.call_soon(seen.append, "queued")
    clock.advance(2)
    run_once(loop)
    assert seen == ["queued", "reader", "timer"]
    loop.remove_reader(one)


def voluntary_switches():
    """How often this thread has slept in the kernel so far: once per poll that waits."""
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_nvcsw


@pytest.mark.promise("P17")
@pytest.mark.parametrize("interval", [0.02, 0.0005])
def test_an_idle_loop_wakes_once_per_timer(loop, interval):
    firings = 0

    def tick():
        nonlocal firings
        firings += 1
        if firings == 25:
            loop.stop()
        else:
            loop.call_later(interval, tick)

    loop.call_soon(tick)
    before = voluntary_switches()
    loop.run_forever()
    # A loop that polls every millisecond, or spins through the last one with tiny waits, would need hundreds more.
    assert voluntary_switches() - before <= 25 * 4


@pytest.mark.promise("P17")
def test_an_idle_loop_uses_no_processor(loop):
    """It sleeps in the kernel until its timer: this thread's processor time does not grow with the waiting time."""
    import time

    def cost_of_waiting(seconds):
        loop.call_later(seconds, loop.stop)
        before = time.thread_time()
        loop.run_forever()
        return time.thread_time() - before

    cost_of_waiting(0.01)
    assert min(cost_of_waiting(0.2) for _ in range(3)) < 0.05
