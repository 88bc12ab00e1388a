"""The loop under test in the shape of asyncio.BaseEventLoop.

Some of CPython's tests build that class, which has no selector, and give it a mock one.
"""

import asyncio
import contextlib
from unittest import mock

from conformance import binding


class BareEventLoop(binding.under_test().EventLoop):
    """Has no pipe that wakes it up: a mock selector could neither watch nor forget it."""

    def __init__(self):
        selector = mock.Mock()
        selector.select.return_value = ()
        super().__init__(selector)

    def _make_self_pipe(self):
        self._ssock = self._csock = None

    def _close_self_pipe(self):
        pass


@contextlib.contextmanager
def in_place_of_base_event_loop():
    """In this context the test modules' `asyncio.BaseEventLoop` and `base_events.BaseEventLoop` are the bare loop."""
    with (
        mock.patch.object(asyncio, "BaseEventLoop", BareEventLoop),
        mock.patch.object(asyncio.base_events, "BaseEventLoop", BareEventLoop),
    ):
        yield
