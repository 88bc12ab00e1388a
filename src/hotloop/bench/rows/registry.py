"""What a row is, and the decorators that make one of a function.

A row does an operation n times on a subject, an event loop or a selector, without knowing whose it is. The whole call
is timed, so what a row does besides its n operations must be too little to matter when n is large. What is expensive to
set up belongs into the making of the subject, which is not timed; a subject is kept over all rounds.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

LoopFunction = Callable[[asyncio.AbstractEventLoop, int], object]
CoroutineFunction = Callable[[asyncio.AbstractEventLoop, int], Coroutine[Any, Any, object]]
SelectorFunction = Callable[[selectors.BaseSelector, int], object]
SelectorSetUp = Callable[[selectors.BaseSelector], AbstractContextManager[None]]


class Maker(Protocol):
    """Whatever makes the subjects, a new one at each call."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop: ...

    def new_selector(self) -> selectors.BaseSelector: ...


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    question: str
    subject: Literal["event loop", "selector"]
    operations: int
    """A number of operations that keeps any loop busy for some milliseconds: for use where it must not depend on the
    loop's speed. The side-by-side runner finds its own."""
    run: Callable[[Any, int], object]
    opened: Callable[[Maker], AbstractContextManager[Any]]
    """Makes the subject and cleans up after it."""


@contextlib.contextmanager
def opened_loop(maker: Maker) -> Iterator[asyncio.AbstractEventLoop]:
    loop = maker.new_event_loop()
    try:
        yield loop
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


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

    def in_task(self, operations: int) -> Callable[[CoroutineFunction], CoroutineFunction]:
        """A coroutine function(loop, n), run in a task of its own."""

        def register(function: CoroutineFunction) -> CoroutineFunction:
            def run(loop: asyncio.AbstractEventLoop, n: int) -> object:
                return loop.run_until_complete(function(loop, n))

            self._add(function, "event loop", operations, run, opened_loop)
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

    def _add(
        self,
        function: Callable[..., object],
        subject: Literal["event loop", "selector"],
        operations: int,
        run: Callable[[Any, int], object],
        opened: Callable[[Maker], AbstractContextManager[Any]],
    ) -> None:
        question = " ".join((function.__doc__ or "").split())
        self.registered.append(Row(function.__name__, question, subject, operations, run, opened))
