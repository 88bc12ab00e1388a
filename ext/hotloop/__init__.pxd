# Marks hotloop as a package for Cython's cimport; the Python package itself lives in src/hotloop.
