"""Another order of what is ready: what a program may not rely on is decided by a seed.

asyncio runs callbacks in the order in which they were queued. Most of that order is an accident: that a task's step
comes before another's depends on what woke them, on the speed of a network, on the version of a library. So a batch is
dealt out anew, at random but for these, which stay in order:

- a task's steps;
- what one callback, or one step, has given to call_soon(). Transports rely on that, and so may programs;
- what one future calls back, tasks that wait for it included, in the order in which it was added;
- timers, by deadline. Those with the same deadline have no order;
- what other threads have posted, and what compiled transports queue for themselves.

To tell who has called call_soon(), a marker is queued before each item, which says that the one before is done.
"""

import asyncio
import functools
import random
import sys
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

RELAXABLE = ("callbacks", "futures")
"""What can be given up: the order of call_soon() calls by one callback or step, and that of a future's callbacks."""

_KEEPERS = ("asyncio.", "hotloop.")  # modules whose callbacks rely on their order


class Place(NamedTuple):
    """Where an item belongs: it comes after all that lead, so far, one of the chains in `follows`."""

    follows: tuple[Hashable, ...]
    leads: tuple[Hashable, ...]


def _in(*chains: Hashable) -> Place:
    return Place(chains, chains)


_ANYWHERE = _in()
_OTHERS = _in("others")
_INTERRUPTED = _in("interrupted")
_TIMERS = _in("timers")


class Pulse:
    """Something for a ready queue that does nothing: an iteration that finds it does not sleep."""

    __slots__ = ()
    _cancelled = False

    def _run(self) -> None:
        pass


class Shuffler:
    """Deals out the batches of one loop."""

    def __init__(self, seed: int | str, relax: Collection[str]) -> None:
        if not isinstance(seed, (int, str)) or isinstance(seed, bool):
            raise TypeError(f"shuffle must be a number or a string to seed with, not {seed!r}")
        if isinstance(relax, str) or not set(relax) <= set(RELAXABLE):
            raise ValueError(f"relax must be a collection of {', '.join(map(repr, RELAXABLE))}, not {relax!r}")
        self.seed = seed
        self._relaxed = frozenset(relax)
        self._random = random.Random(seed)
        self._turn = 0  # counts what has run
        # By id() of a handle that waits in the queue, which cannot be another's as long as it does.
        self._places: dict[int, Place] = {}
        self._io: set[int] = set()  # the same for reports of I/O
        self._marker = _Marker(self)

    def next_turn(self) -> None:
        """What calls call_soon() from here on is somebody else."""
        self._turn += 1

    def called_soon(self, handle: object, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        """Note whom a handle comes from. To be called from the loop's call_soon()."""
        self._places[id(handle)] = self._place_of(callback, args)

    def happened(self, handles: Iterable[object]) -> None:
        """Note that these are reports of I/O, each of another descriptor."""
        self._io.update(map(id, handles))

    def _place_of(self, callback: Callable[..., object], args: tuple[object, ...]) -> Place:
        future = args[0] if len(args) == 1 and asyncio.isfuture(args[0]) and args[0].done() else None
        turn, waited_for = ("turn", self._turn), ("future", id(future))
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task) and not hasattr(asyncio.Task, getattr(callback, "__name__", "")):
            if future is None:
                return _ANYWHERE
            # What asyncio's own callbacks do has to be done when the task goes on.
            return Place((waited_for,), () if "futures" in self._relaxed else (waited_for,))
        if future is not None:
            if "futures" in self._relaxed and not _is_asyncios(callback):
                return _ANYWHERE
            return _in(waited_for) if "callbacks" in self._relaxed else _in(turn, waited_for)
        if "callbacks" in self._relaxed and not _called_by_asyncio():
            return _ANYWHERE
        return _in(turn)

    def deal(self, ready: Any, due: list[Any]) -> None:
        """Put the queue, and the timers that are `due`, the earliest first, into another order."""
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
        """What is in the queue, and where it belongs."""
        # Left by a batch that an exception has ended, and in an order of ours already.
        interrupted = max((index for index, item in enumerate(items) if item is self._marker), default=-2) + 1
        known = self._places.keys() | self._io
        # What a compiled transport has queued may be what comes before its next report.
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
        """Have the traceback say which seed it was."""
        note = f"hotloop.testing: this was with shuffle={self.seed!r}"
        if self._relaxed:
            note += f", relax={sorted(self._relaxed)!r}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


class _Marker(Pulse):
    """Goes before each item of a batch."""

    __slots__ = ("_shuffler",)

    def __init__(self, shuffler: Shuffler) -> None:
        self._shuffler = shuffler

    def _run(self) -> None:
        self._shuffler.next_turn()


def _called_by_asyncio() -> bool:
    """True if it is asyncio itself, or hotloop, that has called call_soon(), which is four frames up."""
    return _keeps_order(sys._getframe(4).f_globals.get("__name__"))


def _is_asyncios(callback: Any) -> bool:
    """True if asyncio, or hotloop, has given it to add_done_callback()."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return _keeps_order(getattr(callback, "__module__", None))


def _keeps_order(module: object) -> bool:
    return isinstance(module, str) and module.startswith(_KEEPERS)
