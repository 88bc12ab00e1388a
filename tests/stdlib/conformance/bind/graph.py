"""Call graphs of tasks and futures under test."""

import asyncio
import unittest
from unittest import mock

from test.test_asyncio import test_graph

from conformance import binding

UNDER_TEST = binding.under_test()


class CallStackTests(test_graph.CallStackTestBase, unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        for module, name, cls in (
            (asyncio.futures, "Future", UNDER_TEST.Future),
            (asyncio.tasks, "Task", UNDER_TEST.Task),
        ):
            self.enterContext(mock.patch.object(module, name, cls))
            self.enterContext(mock.patch.object(asyncio, name, cls))
