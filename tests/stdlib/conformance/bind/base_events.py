"""CPython's tests of BaseEventLoop, on the loop under test in its place."""

import asyncio
from unittest import mock

from test.test_asyncio import test_base_events

from conformance import binding
from conformance.bare_loop import in_place_of_base_event_loop

REPLACES = {"BaseEventLoopTests", "BaseLoopSockSendfileTests"}

UNDER_TEST = binding.under_test()


class BaseEventLoopTests(test_base_events.BaseEventLoopTests):
    def setUp(self):
        self.enterContext(in_place_of_base_event_loop())
        # Some tests put handles straight into the loop's queues.
        self.enterContext(mock.patch.object(asyncio, "Handle", UNDER_TEST.Handle))
        self.enterContext(mock.patch.object(asyncio, "TimerHandle", UNDER_TEST.TimerHandle))
        super().setUp()


class LoopWithoutNativeSendfile(UNDER_TEST.EventLoop):
    _sock_sendfile_native = asyncio.BaseEventLoop._sock_sendfile_native


class BaseLoopSockSendfileTests(test_base_events.BaseLoopSockSendfileTests):
    def setUp(self):
        with mock.patch.object(asyncio.selector_events, "BaseSelectorEventLoop", LoopWithoutNativeSendfile):
            super().setUp()
