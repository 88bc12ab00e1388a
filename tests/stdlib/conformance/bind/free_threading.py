"""Many threads with a loop each, their tasks made by factories of the Task under test."""

from unittest import TestCase

from test.test_asyncio import test_free_threading

from conformance import binding

Task = binding.under_test().Task


class TaskTests(test_free_threading.TestFreeThreading, TestCase):
    def factory(self, loop, coro, **kwargs):
        return Task(coro, loop=loop, **kwargs)


class EagerTaskTests(test_free_threading.TestFreeThreading, TestCase):
    def factory(self, loop, coro, eager_start=True, **kwargs):
        return Task(coro, loop=loop, eager_start=eager_start, **kwargs)
