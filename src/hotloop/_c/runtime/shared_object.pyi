modules: frozenset[str]

# Made by Cython.
__test__: dict[str, str]
