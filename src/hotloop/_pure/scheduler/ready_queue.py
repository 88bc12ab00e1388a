"""The ready queue. A Runnable is any object with `_run()` and `_cancelled`."""

from collections import deque
from typing import Any


class Runnable:
    """Something that a loop can run once."""

    __slots__ = ()

    _cancelled: bool

    def _run(self) -> None:
        raise NotImplementedError


class ReadyQueue(deque[Any]):
    """The Runnables that are due, oldest first. Like every deque, any thread may append to it."""

    __slots__ = ()
