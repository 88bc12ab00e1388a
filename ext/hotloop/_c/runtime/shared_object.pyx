"""The file that holds all compiled modules.

One file takes less memory and loads sooner than one for each module, and the linker puts the code that runs often side
by side. The import system finds this module by the file's name; hotloop/_c/__init__.py then finds the others in it.
"""

cdef extern from *:
    const char *HOTLOOP_MODULES     # their names, with spaces between: a macro that setup.py defines

modules = frozenset(HOTLOOP_MODULES.decode("ascii").split())
