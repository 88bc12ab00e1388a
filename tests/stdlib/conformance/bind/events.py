"""The loop, subprocess, handle and timer tests.

CPython's own Epoll, Poll and Select classes run as they are: they make `asyncio.SelectorEventLoop(...)`, which is the
loop under test, on selectors of the standard library.
"""

import asyncio
from unittest import mock

from test.test_asyncio import test_events
from test.test_asyncio import utils as test_utils

from conformance import binding

REPLACES = {"HandleTests", "TimerTests"}

UNDER_TEST = binding.under_test()
PLAIN_ASYNCIO_LOOP = asyncio.unix_events._UnixSelectorEventLoop
EventLoopTestsMixin = getattr(test_events, "UnixEventLoopTestsMixin", test_events.EventLoopTestsMixin)


class DefaultEventLoopTests(EventLoopTestsMixin, test_events.SubprocessTestsMixin, test_utils.TestCase):
    """The loop as users make it, on its own selector."""

    def create_event_loop(self):
        return UNDER_TEST.EventLoop()


class AsyncioLoopOnSelectorTests(EventLoopTestsMixin, test_utils.TestCase):
    """asyncio's loop on the selector under test."""

    def create_event_loop(self):
        return PLAIN_ASYNCIO_LOOP(UNDER_TEST.selectors["DefaultSelector"]())


class MockLoop(mock.Mock):
    """Handles under test read their loop's `_debug`; asyncio's call get_debug(), which the tests prescribe."""

    @property
    def _debug(self):
        return self.get_debug()


class HandleTests(test_events.HandleTests):
    def setUp(self):
        super().setUp()
        self.loop = MockLoop()
        self.loop.get_debug.return_value = True
        self.enterContext(mock.patch.object(asyncio, "Handle", UNDER_TEST.Handle))


class TimerTests(test_events.TimerTests):
    def setUp(self):
        super().setUp()
        self.loop = MockLoop()
        self.enterContext(mock.patch.object(asyncio, "TimerHandle", UNDER_TEST.TimerHandle))


class GetEventLoopTests(test_events.TestCGetEventLoop):
    """With the C accelerated functions of asyncio and the tasks and futures under test."""

    Task = UNDER_TEST.Task
    Future = UNDER_TEST.Future
