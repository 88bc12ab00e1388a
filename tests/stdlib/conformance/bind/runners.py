"""CPython's tests of asyncio.run and Runner, with the loop under test in place of BaseEventLoop."""

from test.test_asyncio import test_runners

from conformance.bare_loop import in_place_of_base_event_loop

REPLACES = {"RunTests", "RunnerTests"}


class _OnLoopUnderTest:
    def new_loop(self):
        with in_place_of_base_event_loop():
            return super().new_loop()


class RunTests(_OnLoopUnderTest, test_runners.RunTests):
    pass


class RunnerTests(_OnLoopUnderTest, test_runners.RunnerTests):
    pass
