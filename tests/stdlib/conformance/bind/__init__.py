"""One module for each of CPython's test modules that takes its loop, Future, Task or selector from a subclass.

A module here has the name of CPython's without `test_`, so that pytest does not collect it. It holds test classes that
fill in those hooks, and names in `REPLACES` the classes of CPython's module they stand for. All other classes of
CPython's module run as they are, on the default loop (see binding.py).
"""
