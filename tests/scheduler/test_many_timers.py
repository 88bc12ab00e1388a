"""Thousands of timers that are due at once: their order, what is cancelled and set meanwhile, lack of memory."""

import asyncio
import contextvars
import random
import threading
import tracemalloc

import pytest
from support.interpreter import limits_memory
from support.stepping import Clock, run_once


@pytest.fixture
def clock(loop):
    return Clock.replacing_time_of(loop)


@pytest.mark.only("c", "python", reason="asyncio runs timers of one deadline in any order")
@pytest.mark.parametrize("due", [255, 256, 3000])
@pytest.mark.parametrize("later", [0, 10, 30_000])
@pytest.mark.parametrize("deadlines", [1, 1000, None])
def test_order(loop, clock, due, later, deadlines):
    """By deadline, and equal ones by age; `deadlines` is how many different ones there are."""
    generator = random.Random(1)
    seen, expected = [], []
    numbers = [True] * due + [False] * later
    generator.shuffle(numbers)
    for number, is_due in enumerate(numbers):
        when = clock.now + (1 if is_due else 100)
        when += generator.randrange(deadlines) / deadlines if deadlines else generator.random()
        loop.call_at(when, seen.append, number)
        expected.append((when, number))
    expected = [number for _, number in sorted(expected)]
    clock.advance(10)
    run_once(loop)
    assert seen == expected[:due]
    clock.advance(100)
    run_once(loop)
    assert seen == expected


@pytest.mark.only("c", "python", reason="asyncio runs timers of one deadline in any order")
def test_deadlines_of_every_size(loop, clock):
    generator = random.Random(2)
    seen = []
    deadlines = [generator.choice([-1, 1]) * 10.0 ** generator.uniform(-300, 300) for _ in range(2000)]
    deadlines += [0.0, -0.0, float("-inf"), clock.now] * 10
    for number, when in enumerate(deadlines):
        loop.call_at(min(when, clock.now), seen.append, number)
    run_once(loop)
    assert seen == sorted(range(len(deadlines)), key=lambda number: (min(deadlines[number], clock.now), number))


@pytest.mark.parametrize("left", [0, 1, 100])
def test_the_memory_of_a_burst_is_given_back(loop, left):
    """Also if it was cancelled, and while other timers stay."""

    async def main():
        kept = [loop.call_later(3600, print) for _ in range(left)]
        tracemalloc.start()
        try:
            timers = [loop.call_later(60, print) for _ in range(100_000)]
            peak, _ = tracemalloc.get_traced_memory()
            while timers:
                timers.pop().cancel()
            await asyncio.sleep(0.001)
            assert tracemalloc.get_traced_memory()[0] < peak / 20
        finally:
            tracemalloc.stop()
        for timer in kept:
            timer.cancel()

    loop.run_until_complete(main())


def test_the_memory_of_a_burst_is_given_back_while_the_loop_never_waits(loop):
    fired = []

    async def main():
        tracemalloc.start()
        try:
            for _ in range(100_000):
                loop.call_later(0.001, fired.append, None)
            peak, _ = tracemalloc.get_traced_memory()
            while len(fired) < 100_000:
                await asyncio.sleep(0)
            fired.clear()
            assert tracemalloc.get_traced_memory()[0] < peak / 8
        finally:
            tracemalloc.stop()

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio runs timers of one deadline in any order")
@pytest.mark.parametrize("left", [1, 63, 64, 4000])
def test_order_after_the_memory_of_a_burst_is_given_back(loop, clock, left):
    generator = random.Random(left)
    seen, expected = [], []
    timers = [loop.call_at(clock.now + generator.randrange(100, 120), seen.append, number) for number in range(100_000)]
    for number in sorted(generator.sample(range(100_000), left)):
        expected.append((timers[number].when(), number))
        timers[number] = None
    for timer in filter(None, timers):
        timer.cancel()
    waker = threading.Timer(0.01, loop.call_soon_threadsafe, (loop.stop,))
    waker.start()
    loop.run_forever()  # waits
    waker.join()
    for number in range(100_000, 100_500):
        when = clock.now + generator.randrange(100, 120)
        timer = loop.call_at(when, seen.append, number)
        if number % 5:
            expected.append((when, number))
        else:
            timer.cancel()
    clock.advance(200)
    run_once(loop)
    assert seen == [number for _, number in sorted(expected)]


@pytest.mark.parametrize("seed", range(5))
def test_timers_that_set_and_cancel_others(loop, clock, seed):
    generator = random.Random(seed)
    seen, handles = [], {}

    def fire(number):
        seen.append(number)
        del handles[number]
        if handles and generator.random() < 0.3:
            handles.pop(generator.choice(list(handles))).cancel()
        if len(seen) < 4000 and generator.random() < 0.5:
            set_timer(10_000 + len(seen))

    def set_timer(number):
        handles[number] = loop.call_later(generator.random(), fire, number)

    def run():
        for number in range(3000):
            set_timer(number)
        for number in generator.sample(list(handles), 1000):
            handles.pop(number).cancel()
        fired = []
        while handles:
            left = {number: handle.when() for number, handle in handles.items()}
            before = len(seen)
            clock.advance(generator.choice([0.01, 0.1, 1]))
            due = sorted(number for number, when in left.items() if when <= clock.now)
            run_once(loop)
            turn = seen[before:]
            assert set(turn) <= set(due)
            assert turn == sorted(turn, key=lambda number: (left[number], number >= 10_000 and number, number))
            fired += turn
        return fired

    assert run() == seen
    assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


def test_finalizers_that_set_and_cancel_timers(loop, clock):
    """The last timer of a context frees the value of a context variable, while other timers wait in the same batch."""
    variable = contextvars.ContextVar("variable")
    generator = random.Random(3)
    seen, handles, cancelled = [], {}, set()

    class Value:
        def __del__(self):
            for number in generator.sample(list(handles), min(20, len(handles))):
                cancelled.add(number)
                handles[number].cancel()
            handles[len(handles)] = loop.call_at(clock.now - 1, fire, len(handles))

    def fire(number):
        assert number not in cancelled
        seen.append(number)

    def set_timers():
        variable.set(Value())
        for _ in range(100):
            number = len(handles)
            handles[number] = loop.call_later(1 + generator.random(), fire, number)

    for _ in range(30):
        contextvars.copy_context().run(set_timers)
    clock.advance(10)
    while len(set(seen) | cancelled) < len(handles):
        run_once(loop)
    assert len(seen) == len(set(seen))
    handles.clear()


@limits_memory
@pytest.mark.only("c", reason="in Python code any line may fail to allocate")
def test_no_memory_when_they_are_due(impl):
    """Whichever allocation fails, each timer runs in its order, in this iteration or in the next one."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        """if True:
        import _testcapi, gc, random
        gc.disable()  # it needs memory, too
        generator = random.Random(4)
        postponed = 0
        for allocation in range(30):
            loop = impl.new_event_loop()
            reports = []
            loop.set_exception_handler(lambda loop, context: reports.append(context))
            seen = []
            now = loop.time()
            order = []
            for number in range(2000):
                when = now - generator.random()
                loop.call_at(when, seen.append, number)
                order.append((when, number))
            order = [number for _, number in sorted(order)]
            loop.call_soon(loop.stop)
            _testcapi.set_nomemory(allocation, allocation + 1)
            try:
                loop.run_forever()
            except MemoryError:
                pass
            finally:
                _testcapi.remove_mem_hooks()
            postponed += len(seen) + len(reports) < len(order)
            loop.call_later(0.001, loop.stop)
            loop.run_forever()
            missing = set(order) - set(seen)
            # A callback that fails has run.
            assert len(missing) == len(reports) <= 1, (allocation, missing, reports)
            assert seen == [number for number in order if number not in missing], allocation
            loop.close()
        assert postponed
        """
    )
