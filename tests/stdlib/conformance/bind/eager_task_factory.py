"""Eager task factories of the Task under test, on the default loop.

CPython's own classes run as they are, too: asyncio's eager tasks on the loop under test.
"""

from test.test_asyncio import test_eager_task_factory
from test.test_asyncio import utils as test_utils

from conformance import binding

Task = binding.under_test().Task


class EagerTaskFactoryLoopTests(test_eager_task_factory.EagerTaskFactoryLoopTests, test_utils.TestCase):
    Task = Task


class NonEagerTaskCountingTests(test_eager_task_factory.BaseNonEagerTaskFactoryTests, test_utils.TestCase):
    Task = Task


class EagerTaskCountingTests(test_eager_task_factory.BaseEagerTaskFactoryTests, test_utils.TestCase):
    Task = Task
