"""A replaced `loop.time`: test clocks move the scheduler."""

import asyncio

import pytest
from support.stepping import Clock, run_once

pytestmark = pytest.mark.promise("P31")


def test_an_instances_clock_decides_when_timers_run(loop):
    seen = []
    clock = Clock.replacing_time_of(loop)
    assert loop.time() == 1000.0
    assert loop.call_later(60, seen.append, "a minute").when() == 1060.0
    run_once(loop, 5)
    assert seen == []
    clock.advance(60)
    run_once(loop)
    assert seen == ["a minute"]


def test_a_clock_replaced_while_timers_wait(loop):
    seen = []
    handle = loop.call_later(3600, seen.append, "an hour")
    run_once(loop, 2)
    clock = Clock(handle.when())
    loop.time = clock
    run_once(loop)
    assert seen == ["an hour"]


def test_a_class_may_bring_its_clock(impl):
    clock = Clock()

    class TestLoop(impl.EventLoop):
        def time(self):
            return clock()

    loop = TestLoop()
    seen = []
    try:
        loop.call_later(60, seen.append, "a minute")
        run_once(loop, 2)
        assert seen == []
        clock.advance(61)
        run_once(loop)
        assert seen == ["a minute"]
    finally:
        loop.close()


def test_the_real_clock_comes_back(loop):
    seen = []
    Clock.replacing_time_of(loop)
    del loop.time
    loop.call_later(0.001, seen.append, "ran")
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert seen == ["ran"]


def test_a_clock_moved_by_callbacks_fires_timers_during_one_run(loop):
    """A test clock jumps by minutes while the loop is never idle: sleeping tasks wake when their time has come."""
    clock = Clock.replacing_time_of(loop)
    seen = []

    async def sleeper(delay):
        await asyncio.sleep(delay)
        seen.append((delay, clock.now))

    async def driver():
        for _ in range(10):
            await asyncio.sleep(0)
        while clock.now < 1010.0:
            clock.advance(1.0)
            # Turns in which the loop sees the timer, and its future wakes the sleeper.
            for _ in range(5):
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(driver(), *(sleeper(delay) for delay in (3, 1, 7)))

    loop.run_until_complete(main())
    assert seen == [(1, 1001.0), (3, 1003.0), (7, 1007.0)]


def test_a_clock_that_raises_does_not_hang_the_loop(loop):
    def broken():
        raise ZeroDivisionError("no time")

    handle = loop.call_later(3600, print)
    loop.time = broken
    with pytest.raises(ZeroDivisionError, match="no time"):
        run_once(loop)
    del loop.time
    handle.cancel()
    run_once(loop)


def test_a_clock_may_go_backwards(loop):
    clock = Clock.replacing_time_of(loop)
    seen = []
    loop.call_later(1, seen.append, "first")
    clock.advance(1)
    run_once(loop)
    clock.advance(-500)
    loop.call_later(1, seen.append, "second")
    run_once(loop, 2)
    assert seen == ["first"]
    clock.advance(1)
    run_once(loop)
    assert seen == ["first", "second"]
