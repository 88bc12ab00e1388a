"""Runs ready callbacks in another order: where a program may not rely on the order, a seed decides.

asyncio runs callbacks in the order in which they were queued. Most of that order is an accident: which of two tasks
runs first depends on what woke them, on the speed of a network, on the version of a library. So each batch is shuffled,
except that these stay in order:

- the steps of a task;
- the call_soon() calls of one callback or task step. Transports rely on that, and programs may;
- the callbacks of one future, including the tasks that wait for it, in the order in which they were added;
- timers, by deadline. Timers with the same deadline have no order;
- the calls of one subprocess's protocol;
- the calls from other threads, and what compiled transports queue for themselves.

A marker before each item tells the shuffler that the previous item is done, and so which one calls call_soon().
"""

import asyncio
import functools
import random
import sys
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

RELAXABLE = ("callbacks", "futures")
"""The orders that can be given up: of the call_soon() calls of one callback or step, and of a future's callbacks."""

_KEEPERS = ("asyncio.", "hotloop.")  # modules whose callbacks rely on their order


class Place(NamedTuple):
    """The constraints of an item: it comes after the last item so far that leads any of the chains in `follows`."""

    follows: tuple[Hashable, ...]
    leads: tuple[Hashable, ...]


def _in(*chains: Hashable) -> Place:
    return Place(chains, chains)


_ANYWHERE = _in()
_OTHERS = _in("others")
_INTERRUPTED = _in("interrupted")
_TIMERS = _in("timers")


class Pulse:
    """A Runnable that does nothing. An iteration that finds it on the ready queue does not sleep."""

    __slots__ = ()
    _cancelled = False

    def _run(self) -> None:
        pass


class Shuffler:
    """Shuffles the batches of one loop."""

    def __init__(self, seed: int | str, relax: Collection[str]) -> None:
        if not isinstance(seed, (int, str)) or isinstance(seed, bool):
            raise TypeError(f"shuffle must be a number or a string to seed with, not {seed!r}")
        if isinstance(relax, str) or not set(relax) <= set(RELAXABLE):
            raise ValueError(f"relax must be a collection of {', '.join(map(repr, RELAXABLE))}, not {relax!r}")
        self.seed = seed
        self._relaxed = frozenset(relax)
        self._random = random.Random(seed)
        self._turn = 0  # counts the items that have run
        # By id() of a handle on the queue, which is unique as long as the handle is there.
        self._places: dict[int, Place] = {}
        self._io: set[int] = set()  # the id() of each handle that reports I/O
        self._marker = _Marker(self)

    def next_turn(self) -> None:
        """The next item runs: later call_soon() calls are its calls."""
        self._turn += 1

    def note_call(self, handle: object, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        """Note which item has queued a handle. To be called from the loop's call_soon()."""
        self._places[id(handle)] = self._place_of(callback, args)

    def note_io(self, handles: Iterable[object]) -> None:
        """Note that these are reports of I/O, each of another descriptor."""
        self._io.update(map(id, handles))

    def _place_of(self, callback: Callable[..., object], args: tuple[object, ...]) -> Place:
        future = args[0] if len(args) == 1 and asyncio.isfuture(args[0]) and args[0].done() else None
        turn, waited_for = ("turn", self._turn), ("future", id(future))
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task) and not hasattr(asyncio.Task, getattr(callback, "__name__", "")):
            if future is None:
                return _ANYWHERE
            # asyncio's own callbacks must have run when the task continues.
            after = (waited_for, ("process", self._turn))
            return Place(after, () if "futures" in self._relaxed else (waited_for,))
        if future is not None:
            if "futures" in self._relaxed and not _is_asyncios(callback):
                return _ANYWHERE
            return _in(waited_for) if "callbacks" in self._relaxed else _in(turn, waited_for)
        caller = sys._getframe(3)
        module = caller.f_globals.get("__name__")
        if module == "asyncio.base_subprocess":
            # A process's protocol relies on the order of its calls, whatever they come from; and subprocess_exec(),
            # whose future is set in the same turn as its connection_made() is queued, on that call.
            return _in(turn, ("process", id(caller.f_locals["self"])), ("process", self._turn))
        if "callbacks" in self._relaxed and not _keeps_order(module):
            return _ANYWHERE
        return _in(turn)

    def deal(self, ready: Any, due: list[Any]) -> None:
        """Put the queue and the timers that are `due`, which come earliest first, into another order."""
        items = [ready.popleft() for _ in range(len(ready))]
        placed = self._placed(items)
        for _, same in groupby(due, lambda handle: handle.when()):
            timers = list(same)
            self._random.shuffle(timers)
            placed += [(handle, _TIMERS) for handle in timers]
        self._places = {}
        self._io = set()
        self.next_turn()
        for item in self._merged(placed):
            ready.append(self._marker)
            ready.append(item)

    def _placed(self, items: list[Any]) -> list[tuple[Any, Place]]:
        """The items of the queue with their constraints."""
        # Up to the last marker, the items are left from a batch that an exception ended: they are shuffled already.
        interrupted = max((index for index, item in enumerate(items) if item is self._marker), default=-2) + 1
        known = self._places.keys() | self._io
        # If there are unknown items, a compiled transport may have queued one that must come before its next report.
        io = _ANYWHERE if all(id(item) in known for item in items) else _OTHERS
        placed = []
        for index, item in enumerate(items):
            if item is self._marker:
                continue
            if index <= interrupted:
                place = _INTERRUPTED
            else:
                place = io if id(item) in self._io else self._places.get(id(item), _OTHERS)
            placed.append((item, place))
        return placed

    def _merged(self, placed: list[tuple[Any, Place]]) -> Iterable[Any]:
        """The items in a random order that keeps the chains."""
        last: dict[Hashable, int] = {}
        followers: list[list[int]] = [[] for _ in placed]
        waits_for = [0] * len(placed)
        for index, (_, place) in enumerate(placed):
            for before in {last[chain] for chain in place.follows if chain in last}:
                followers[before].append(index)
                waits_for[index] += 1
            last.update(dict.fromkeys(place.leads, index))
        free = [index for index, count in enumerate(waits_for) if not count]
        while free:
            at = self._random.randrange(len(free))
            free[at], free[-1] = free[-1], free[at]
            index = free.pop()
            yield placed[index][0]
            for follower in followers[index]:
                waits_for[follower] -= 1
                if not waits_for[follower]:
                    free.append(follower)

    def add_note(self, error: BaseException) -> None:
        """Add a note with the seed to an exception's traceback."""
        note = f"hotloop.testing: this was with shuffle={self.seed!r}"
        if self._relaxed:
            note += f", relax={sorted(self._relaxed)!r}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


class _Marker(Pulse):
    """Goes before each item of a batch, and counts it."""

    __slots__ = ("_shuffler",)

    def __init__(self, shuffler: Shuffler) -> None:
        self._shuffler = shuffler

    def _run(self) -> None:
        self._shuffler.next_turn()


def _is_asyncios(callback: Any) -> bool:
    """True if it is a callback of asyncio's or hotloop's own code."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return _keeps_order(getattr(callback, "__module__", None))


def _keeps_order(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_KEEPERS)
