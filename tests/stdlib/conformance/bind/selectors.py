"""CPython's selector tests, on each selector class of the implementation."""

import unittest

from test import test_selectors

from conformance import binding

REPLACES = {"DefaultSelectorTestCase", "EpollSelectorTestCase", "KqueueSelectorTestCase"}

SELECTORS = binding.under_test().selectors


class DefaultSelectorTestCase(test_selectors.DefaultSelectorTestCase):
    SELECTOR = SELECTORS["DefaultSelector"]


@unittest.skipUnless("EpollSelector" in SELECTORS, "none of hotloop's own on epoll here")
class EpollSelectorTestCase(test_selectors.EpollSelectorTestCase):
    SELECTOR = SELECTORS.get("EpollSelector")


@unittest.skipUnless("KqueueSelector" in SELECTORS, "none of hotloop's own on kqueue here")
class KqueueSelectorTestCase(test_selectors.KqueueSelectorTestCase):
    SELECTOR = SELECTORS.get("KqueueSelector")
