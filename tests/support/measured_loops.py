"""The loops on which every row of the benchmarks has to run."""

import importlib.util

import hotloop


def loops_that_must_do_every_row():
    """By their names in benchmarks/compare.py."""
    extension = importlib.util.find_spec("hotloop._c.loop.loop_core") is not None
    compiled = {"hotloop-compiled"} if hotloop.compiled_asyncio().available else set()
    return {"asyncio", "hotloop-python"} | ({"hotloop-c"} if extension else set()) | compiled
