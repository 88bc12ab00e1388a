"""The class of a row, and the decorators that make one of a function.

A row does an operation n times on a subject, an event loop or a selector of any implementation. The whole call is
timed, so the work besides the n operations must be too little to matter when n is large. Expensive preparations belong
into the making of the subject, which is not timed; all rounds use the same subject.

A network row's subject is a server or a client on a loop, and it measures itself: the result is the processor time of
this process while another process makes the load.
"""

import asyncio
import contextlib
import importlib.util
import selectors
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..load import Load

LoopFunction = Callable[[asyncio.AbstractEventLoop, int], object]
Table = Literal["Network", "TLS", "Libraries"]
"""The table of a network row. Libraries: their servers and clients, with Python code of their own in each operation."""
CoroutineFunction = Callable[[asyncio.AbstractEventLoop, int], Coroutine[Any, Any, object]]
SelectorFunction = Callable[[selectors.BaseSelector, int], object]
SelectorSetUp = Callable[[selectors.BaseSelector], AbstractContextManager[None]]


class Maker(Protocol):
    """Makes the subjects, a new one at each call."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop: ...

    def new_selector(self) -> selectors.BaseSelector: ...


class NetworkSubject(Protocol):
    """A server or a client that is ready for work."""

    def run(self, n: int) -> Load:
        """Do n operations, or have the clients do them, and return what that took."""


class NotOffered(Exception):
    """The loop does not implement what a row measures; the text names it."""


def always_available() -> str | None:
    return None


def missing(*packages: str) -> str | None:
    """The reason why a row that needs these packages cannot be measured; None if all are installed."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            return f"it needs {name}, which is not installed"
    return None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    question: str
    subject: Literal["event loop", "selector", "network"]
    operations: int
    """A number of operations that keeps any loop busy for some milliseconds, for measurements in which the number must
    not depend on the loop's speed. The side-by-side runner finds its own."""
    run: Callable[[Any, int], object]
    """The measurement; a network row returns its Load."""
    opened: Callable[[Maker], AbstractContextManager[Any]]
    """Makes the subject and cleans up after it."""
    bare: Callable[[], AbstractContextManager[NetworkSubject]] | None = None
    """The same service by the bare C server, where there is one."""
    limited: bool = False
    """Whether to divide its processor time by the bare C server's: the row has next to no Python code of its own."""
    on_request: bool = False
    """Whether a run leaves it out unless asked for it."""
    calibrated: bool = True
    """Whether the runner finds the number of operations; otherwise the row runs for a time of its own."""
    in_a_round: int | None = None
    """Operations in a round of the usual length; a shorter round has fewer in proportion. None: the runner decides."""
    table: Table = "Network"
    """Of a network row."""
    on_transports: bool = True
    """Of a network row: whether its bytes go through transports or the sock_*() methods, which aiofastnet replaces."""
    in_turns: bool = False
    """Whether its threads or processes take turns, so that it runs on one core: see placement.py."""
    packages: Sequence[str] = ()
    """The libraries that the row measures: their versions belong to the result."""
    unavailable: Callable[[], str | None] = always_available
    """Returns the reason why this machine cannot measure the row on any loop; None if it can."""


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

    def on_loop(self, operations: int, **settings: Any) -> Callable[[LoopFunction], LoopFunction]:
        """A function(loop, n) that runs the loop itself; the settings are those of Row."""

        def register(function: LoopFunction) -> LoopFunction:
            self._add(function, "event loop", operations, function, opened_loop, **settings)
            return function

        return register

    def in_task(self, operations: int, **settings: Any) -> Callable[[CoroutineFunction], CoroutineFunction]:
        """A coroutine function(loop, n), run in a task of its own; the settings are those of Row."""

        def register(function: CoroutineFunction) -> CoroutineFunction:
            def run(loop: asyncio.AbstractEventLoop, n: int) -> object:
                return loop.run_until_complete(function(loop, n))

            self._add(function, "event loop", operations, run, opened_loop, **settings)
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
        """A row whose subject `opened` makes for a loop; the settings are those of Row."""

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
