"""sys._current_frames() for CPython 3.11.0 to 3.11.8, where it may run the garbage collector while it holds a lock of
the interpreter's. A finalizer that releases the GIL there, as one that closes a socket does, hangs the process, because
a thread that needs the lock waits for it without releasing the GIL. See CPython's issue 106883.
"""

import sys

cdef extern from "Python.h":
    bint PyGC_Disable() noexcept
    bint PyGC_Enable() noexcept


def current_frames():
    """The innermost frame of each thread, by its identifier, without a garbage collection meanwhile.

    Neither other threads nor signal handlers run between the three calls, as they would in Python."""
    cdef bint was_enabled = PyGC_Disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            PyGC_Enable()
