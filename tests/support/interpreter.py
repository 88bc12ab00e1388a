"""Marks for tests that depend on the interpreter. Other interpreters skip tests of behaviour that only CPython has, for
the reason given here."""

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

# Hypothesis counts references to see whether its random source stays alive; since CPython 3.14 its count is wrong.
uses_hypothesis = pytest.mark.filterwarnings("ignore:It looks like `register_random`")
