"""What a row is, and the decorators that make one of a function.

A row does an operation n times on a subject, an event loop or a selector, without knowing whose it is. The whole call
is timed, so what a row does besides its n operations must be too little to matter when n is large. What is expensive to
set up belongs into the making of the subject, which is not timed; a subject is kept over all rounds.

A network row's subject is something that is running on a loop, and it measures itself: what counts there is not time
but the processor time of this process, while another one makes the load.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..load import Load

LoopFunction = Callable[[asyncio.AbstractEventLoop, int], object]
CoroutineFunction = Callable[[asyncio.AbstractEventLoop, int], Coroutine[Any, Any, object]]
SelectorFunction = Callable[[selectors.BaseSelector, int], object]
SelectorSetUp = Callable[[selectors.BaseSelector], AbstractContextManager[None]]


class Maker(Protocol):
    """Whatever makes the subjects, a new one at each call."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop: ...

    def new_selector(self) -> selectors.BaseSelector: ...


class NetworkSubject(Protocol):
    """A server or a client that is ready for work."""

    def run(self, n: int) -> Load:
        """Do n operations, or let them be done, and say what that took."""


class NotOffered(Exception):
    """The loop has nothing of the kind that a row is about; the text says of what kind."""


def always_available() -> str | None:
    return None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    question: str
    subject: Literal["event loop", "selector", "network"]
    operations: int
    """A number of operations that keeps any loop busy for some milliseconds: for use where it must not depend on the
    loop's speed. The side-by-side runner finds its own."""
    run: Callable[[Any, int], object]
    """Of a network row: its Load."""
    opened: Callable[[Maker], AbstractContextManager[Any]]
    """Makes the subject and cleans up after it."""
    bare: Callable[[], AbstractContextManager[NetworkSubject]] | None = None
    """The same service by the bare C server, where there is one."""
    limited: bool = False
    """The bare C server's processor time is one to divide by: the row has next to no Python code of its own."""
    on_request: bool = False
    """Left out of a run that does not ask for it."""
    calibrated: bool = True
    """The number of operations is found out; otherwise the row goes on for a time of its own."""
    in_a_round: int | None = None
    """So many operations in a round of the usual length, in a shorter one fewer in proportion; None: found out."""
    tls: bool = False
    """Of a network row: over TLS, and so in a table of its own."""
    in_turns: bool = False
    """What works in it never does so at the same time, so it runs on one core: see placement.py."""
    unavailable: Callable[[], str | None] = always_available
    """Why the row cannot be measured on this machine, on no loop, if so."""


@contextlib.contextmanager
def opened_loop(maker: Maker) -> Iterator[asyncio.AbstractEventLoop]:
    loop = maker.new_event_loop()
    try:
        yield loop
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def run_network(subject: NetworkSubject, n: int) -> Load:
    return subject.run(n)


@dataclass
class Rows:
    """Collects the rows of one file; its methods are the decorators, which leave the function as it is."""

    registered: list[Row] = field(default_factory=list)

    def on_loop(self, operations: int) -> Callable[[LoopFunction], LoopFunction]:
        """A function(loop, n) that runs the loop itself."""

        def register(function: LoopFunction) -> LoopFunction:
            self._add(function, "event loop", operations, function, opened_loop)
            return function

        return register

    def in_task(self, operations: int, *, in_turns: bool = False) -> Callable[[CoroutineFunction], CoroutineFunction]:
        """A coroutine function(loop, n), run in a task of its own."""

        def register(function: CoroutineFunction) -> CoroutineFunction:
            def run(loop: asyncio.AbstractEventLoop, n: int) -> object:
                return loop.run_until_complete(function(loop, n))

            self._add(function, "event loop", operations, run, opened_loop, in_turns=in_turns)
            return function

        return register

    def on_selector(self, operations: int, set_up: SelectorSetUp) -> Callable[[SelectorFunction], SelectorFunction]:
        """A function(selector, n); `set_up` registers file objects with the selector and closes them in the end."""

        @contextlib.contextmanager
        def opened_selector(maker: Maker) -> Iterator[selectors.BaseSelector]:
            with maker.new_selector() as selector, set_up(selector):
                yield selector

        def register(function: SelectorFunction) -> SelectorFunction:
            self._add(function, "selector", operations, function, opened_selector)
            return function

        return register

    def on_network(
        self,
        name: str,
        question: str,
        operations: int,
        opened: Callable[[asyncio.AbstractEventLoop], AbstractContextManager[NetworkSubject]],
        **settings: Any,
    ) -> None:
        """What `opened` makes for a loop; the settings are those of Row."""

        @contextlib.contextmanager
        def opened_on_loop(maker: Maker) -> Iterator[NetworkSubject]:
            with opened_loop(maker) as loop, opened(loop) as subject:
                yield subject

        self.registered.append(Row(name, question, "network", operations, run_network, opened_on_loop, **settings))

    def _add(
        self,
        function: Callable[..., object],
        subject: Literal["event loop", "selector"],
        operations: int,
        run: Callable[[Any, int], object],
        opened: Callable[[Maker], AbstractContextManager[Any]],
        **settings: Any,
    ) -> None:
        question = " ".join((function.__doc__ or "").split())
        self.registered.append(Row(function.__name__, question, subject, operations, run, opened, **settings))
