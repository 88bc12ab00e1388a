"""The threads of the instruments."""

import threading
from collections.abc import Callable


class InstrumentThread(threading.Thread):
    """A thread that reads the state of loops and never wakes one: hotloop.testing does not wait for it.

    It is a daemon, because the end of the program must not wait for it."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self.pydev_do_not_trace = True  # debuggers do not trace such threads
