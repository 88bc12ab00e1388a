"""The tests of asyncio's compiled objects: skipped on Pythons that have none.

A file that needs hotloop's loop has the mark `only("c", ...)`, one that compares loops `only("c", "asyncio", ...)`. The
fixture `aio` is asyncio, then hotloop.asyncio: what a test finds has to be the same on both.
"""

import asyncio
import functools
import os

import pytest

import hotloop
import hotloop.asyncio

# Asked once: it looks through all modules.
_state = functools.cache(hotloop.compiled_asyncio)


@pytest.fixture(autouse=True)
def _compiled_objects():
    state = _state()
    if not state.available:
        # A missing extension is an error where it is to be tested, as everywhere.
        assert "GIL" in state.reason or "c" not in os.environ.get("HOTLOOP_TEST_IMPLS", "c").split(","), state.reason
        pytest.skip(f"nothing of asyncio is compiled here: {state.reason}")


@pytest.fixture(params=["asyncio", "hotloop.asyncio"])
def aio(request):
    return asyncio if request.param == "asyncio" else hotloop.asyncio
