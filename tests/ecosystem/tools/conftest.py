"""These tests run in the environment that run.py makes."""

import faulthandler
import sys

import pytest

SECONDS_BEFORE_A_TEST_HANGS = 400


@pytest.fixture(autouse=True)
def hang_guard():
    faulthandler.dump_traceback_later(SECONDS_BEFORE_A_TEST_HANGS, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def port():
    from serving import free_port

    return free_port()
