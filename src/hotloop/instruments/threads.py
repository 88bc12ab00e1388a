"""The threads of the instruments, and what they see of other threads."""

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType

from hotloop._impl import in_subinterpreter

_COLLECTS_INSIDE = sys.version_info < (3, 11, 9)
"""Whether sys._current_frames() may run the garbage collector while it holds a lock of the interpreter's. A finalizer
that releases the GIL there, as one that closes a socket does, hangs the process (CPython issue 106883)."""


def current_frames() -> dict[int, FrameType]:
    """sys._current_frames(), which cannot hang the process."""
    if not _COLLECTS_INSIDE or not gc.isenabled():
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


class InstrumentThread(threading.Thread):
    """A thread that reads the state of loops and never wakes one: hotloop.testing does not wait for it.

    It is a daemon, because the end of the program must not wait for it. In a subinterpreter the constructor raises
    RuntimeError: CPython allows no daemons there, or crashes when it destroys a subinterpreter that has one.
    """

    def __init__(self, run: Callable[[], object], name: str) -> None:
        if in_subinterpreter():
            raise RuntimeError("hotloop's instruments need a thread that a subinterpreter cannot have")
        super().__init__(target=run, name=name, daemon=True)
        self.pydev_do_not_trace = True  # debuggers do not trace such threads
