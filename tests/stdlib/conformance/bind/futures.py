"""The Future tests: the class under test and a subclass of it, on CPython's test loop and on the loop under test."""

from test.test_asyncio import test_futures
from test.test_asyncio import utils as test_utils

from conformance import binding
from conformance.virtual_time import OnLoopUnderTest

REPLACES = {
    f"{kind}Future{tests}Tests"
    for kind in ("C", "CSub", "Py")
    for tests in ("", "DoneCallback", "Inheritance")
    if (kind, tests) != ("CSub", "Inheritance")
}

Future = binding.under_test().Future


class SubFuture(Future):
    pass


class FutureTests(test_futures.BaseFutureTests, test_utils.TestCase):
    cls = Future


class SubFutureTests(test_futures.BaseFutureTests, test_utils.TestCase):
    cls = SubFuture


class FutureOnLoopUnderTestTests(OnLoopUnderTest, FutureTests):
    pass


class FutureDoneCallbackTests(test_futures.BaseFutureDoneCallbackTests, test_utils.TestCase):
    def _new_future(self):
        return Future(loop=self.loop)


class SubFutureDoneCallbackTests(test_futures.BaseFutureDoneCallbackTests, test_utils.TestCase):
    def _new_future(self):
        return SubFuture(loop=self.loop)


class FutureDoneCallbackOnLoopUnderTestTests(OnLoopUnderTest, FutureDoneCallbackTests):
    pass


class FutureInheritanceTests(test_futures.BaseFutureInheritanceTests, test_utils.TestCase):
    def _get_future_cls(self):
        return Future
