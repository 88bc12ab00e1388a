"""An event loop under test whose clock moves only when it waits.

CPython's Future and Task tests run on a loop of their own (`test.test_asyncio.utils.TestLoop`) with a made-up clock. To
run the same tests on the loop under test without waiting for real seconds, its selector turns each wait into a step of
the clock.
"""

import selectors

from conformance import binding


class SteppingSelector(selectors.DefaultSelector):
    """Never waits: a timeout moves the clock instead."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def advance(self, seconds):
        self.now += seconds

    def select(self, timeout=None):
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # nothing is scheduled: only another thread or a signal can wake the loop
            return super().select(None)
        self.advance(timeout)
        return []


def new_virtual_time_loop():
    """A loop under test that starts at time 0, as CPython's TestLoop does."""
    selector = SteppingSelector()
    loop = binding.under_test().EventLoop(selector)
    loop.time = lambda: selector.now
    loop.advance_time = selector.advance
    loop._clock_resolution = 1e-9  # TestLoop's: the tests compare times of this loop exactly
    return loop


class OnLoopUnderTest:
    """Mixed into a test class of `test_utils.TestCase`: its test loops are loops under test."""

    def new_test_loop(self, gen=None):
        # `gen` tells TestLoop how far to move its clock at each timer; here waiting for the timer moves it.
        loop = new_virtual_time_loop()
        self.set_event_loop(loop)
        return loop
