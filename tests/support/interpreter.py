"""Marks for tests that depend on the interpreter. Those of what only CPython does are skipped on others, for the reason
given here."""

import sys

import pytest

_elsewhere = sys.implementation.name != "cpython"

counts_references = pytest.mark.skipif(
    _elsewhere, reason="here an object's life does not end with the last reference to it, but with a collection"
)
checks_futures = pytest.mark.skipif(
    _elsewhere, reason="asyncio's Future is in Python here, and says no in other words than CPython's compiled one"
)
limits_memory = pytest.mark.skipif(_elsewhere, reason="here memory cannot be made to run out")

# Hypothesis decides by a reference count whether its random source will live; since CPython 3.14 it miscounts.
uses_hypothesis = pytest.mark.filterwarnings("ignore:It looks like `register_random`")
