"""Awaiting tasks under test, on the default loop."""

import unittest

from test.test_asyncio import test_futures2

from conformance import binding

REPLACES = {"CFutureTests", "PyFutureTests"}


class TaskTests(test_futures2.FutureTests, unittest.IsolatedAsyncioTestCase):
    cls = binding.under_test().Task
