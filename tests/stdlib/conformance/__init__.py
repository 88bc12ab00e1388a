"""CPython's own test suites, bound to hotloop; see run.py in the folder above."""
