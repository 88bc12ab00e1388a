"""Meter: what a loop notes of itself in each iteration.

An object of its own, because the interpreter is quick at the attributes in an instance's dict only as long as there are
no more than 30 of them, which asyncio's loops nearly have.
"""

from itertools import repeat
from operator import length_hint


class Meter:
    """Notes of one loop."""

    __slots__ = ("batch", "items", "next_poll")

    def __init__(self) -> None:
        self.next_poll = 0.0  # in seconds, by LoopCore._clock()
        # What is left of the batch that is run; None while the loop polls, and while it does not run. So other threads
        # see how far it is, and counting costs nothing for each item.
        self.batch: repeat[None] | None = None
        self.items = 0  # callbacks and task steps that were begun, and what is left of the batch

    def progress(self) -> int:
        """See LoopCore._progress()."""
        batch = self.batch
        return -1 if batch is None else self.items - length_hint(batch)

    def enter(self, outer: "repeat[None]") -> None:
        """A batch begins inside of a callback of the `outer` one."""
        self.items -= length_hint(outer)

    def leave(self, outer: "repeat[None] | None", batch: "repeat[None]") -> None:
        """A batch is over, before its end or inside of a callback of an `outer` one."""
        self.items -= length_hint(batch)
        if outer is not None:
            self.items += length_hint(outer)
