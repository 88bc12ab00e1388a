# Only for other compiled modules: nothing here can be used from Python.

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
