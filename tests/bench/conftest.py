"""Fixtures for the tests of the benchmarks."""

import os

import pytest

from hotloop_bench import identity, load


@pytest.fixture
def fresh_programs():
    """Clear the cached load generators before and after the test."""
    load._program_or_reason.cache_clear()
    yield
    load._program_or_reason.cache_clear()


@pytest.fixture
def certificate(tmp_path):
    """The path of a file with a new certificate and its key."""
    path = os.fspath(tmp_path / "identity")
    identity.make(path)
    return path
