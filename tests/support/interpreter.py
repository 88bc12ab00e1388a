"""Marks for tests that depend on the interpreter. Other interpreters skip tests of behaviour that only CPython has, for
the reason given here."""

import sys
import sysconfig

import pytest

_elsewhere = sys.implementation.name != "cpython"

counts_references = pytest.mark.skipif(
    _elsewhere, reason="here an object's life does not end with the last reference to it, but with a collection"
)
checks_futures = pytest.mark.skipif(
    _elsewhere, reason="asyncio's Future is in Python here, and says no in other words than CPython's compiled one"
)
limits_memory = pytest.mark.skipif(
    _elsewhere or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="here memory cannot be made to run out; without the GIL, a PyList_New() that finds none frees memory twice",
)

# Hypothesis counts references to see whether its random source stays alive; since CPython 3.14 its count is wrong.
uses_hypothesis = pytest.mark.filterwarnings("ignore:It looks like `register_random`")
