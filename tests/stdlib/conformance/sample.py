"""A suite with one test for each possible outcome; test_harness.py runs it."""

import os
import time
import unittest


class SampleTests(unittest.TestCase):
    def test_aborts(self):
        os.abort()

    def test_fails(self):
        self.fail("on purpose")

    def test_fails_in_a_subtest(self):
        with self.subTest(part=1):
            self.fail("on purpose")

    def test_hangs(self):
        time.sleep(3600)

    def test_passes(self):
        pass

    def test_skips(self):
        self.skipTest("on purpose")

    @unittest.expectedFailure
    def test_passes_unexpectedly(self):
        pass


class BrokenFixtureTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("on purpose")

    def test_never_starts(self):
        pass
