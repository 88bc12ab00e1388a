"""pytest plugin: adds to the report of each test its node id and how many loops it made, hotloop's and others."""

import asyncio
import functools

import pytest
from conformance import binding

made = {"ours": 0, "others": 0}


def is_ours(loop: asyncio.AbstractEventLoop) -> bool:
    return isinstance(loop, binding.under_test().EventLoop)


def count(original):
    @functools.wraps(original)
    def counting_init(self, *args, **kwargs):
        made["ours" if is_ours(self) else "others"] += 1
        original(self, *args, **kwargs)

    return counting_init


def pytest_configure(config):
    # Every loop of asyncio's and of hotloop's passes here, subclasses of either included.
    asyncio.BaseEventLoop.__init__ = count(asyncio.BaseEventLoop.__init__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "teardown":
        report.user_properties += [("nodeid", item.nodeid), *made.items()]
        made.update(ours=0, others=0)
    return report
