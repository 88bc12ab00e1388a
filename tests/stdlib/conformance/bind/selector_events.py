"""CPython's tests of BaseSelectorEventLoop, on the loop under test in its place."""

from unittest import mock

from test.test_asyncio import test_selector_events

from conformance import binding

REPLACES = {"BaseSelectorEventLoopTests"}


class EventLoopWithMockPipe(binding.under_test().EventLoop):
    _make_self_pipe = test_selector_events.TestBaseSelectorEventLoop._make_self_pipe
    _close_self_pipe = test_selector_events.TestBaseSelectorEventLoop._close_self_pipe


class BaseSelectorEventLoopTests(test_selector_events.BaseSelectorEventLoopTests):
    def setUp(self):
        with mock.patch.object(test_selector_events, "TestBaseSelectorEventLoop", EventLoopWithMockPipe):
            super().setUp()
