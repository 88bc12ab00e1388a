"""The threads of the instruments, and what they see of other threads."""

import sys
import threading
from collections.abc import Callable

from hotloop._impl import implementation, in_subinterpreter

if implementation == "c" and sys.version_info < (3, 11, 9):
    # There the interpreter's function may hang the process. In Python it cannot be mended.
    from hotloop._c.runtime.thread_frames import current_frames as current_frames
else:
    current_frames = sys._current_frames


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
