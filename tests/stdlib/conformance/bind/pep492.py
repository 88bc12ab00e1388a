"""CPython's tests of async/await on a loop, with the loop under test in place of BaseEventLoop."""

from test.test_asyncio import test_pep492

from conformance.bare_loop import in_place_of_base_event_loop

REPLACES = {"LockTests", "StreamReaderTests", "CoroutineTests"}


class _OnLoopUnderTest:
    def setUp(self):
        with in_place_of_base_event_loop():
            super().setUp()


class LockTests(_OnLoopUnderTest, test_pep492.LockTests):
    pass


class StreamReaderTests(_OnLoopUnderTest, test_pep492.StreamReaderTests):
    pass


class CoroutineTests(_OnLoopUnderTest, test_pep492.CoroutineTests):
    pass
