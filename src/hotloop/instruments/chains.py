"""Await chains: where a task waits, from its own coroutine to the innermost, and which tasks wait for it.

All of it is read from outside, maybe while another thread runs the loop: the answers are those of a moment ago.
"""

import asyncio
import gc
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Any, NamedTuple

from hotloop._asyncio.awaited_by import awaited_by
from hotloop.instruments.origins import is_of_asyncio, is_of_stdlib

_DEEPEST = 1000
"""The length at which a chain is cut: other threads may resume its coroutines meanwhile, and it may take any shape."""

_WRAPPERS = {
    "async_generator_asend": AsyncGeneratorType,
    "async_generator_athrow": AsyncGeneratorType,
    "coroutine_wrapper": CoroutineType,
}
"""The interpreter's awaitables without an attribute for the object they drive, by class name, with its type."""


class Place(NamedTuple):
    """Where a coroutine is suspended or runs."""

    filename: str
    line: int
    """0: unknown."""
    name: str
    """The function's qualified name."""

    def __str__(self) -> str:
        return f'File "{self.filename}", line {self.line}, in {self.name}'


def await_chain(coroutine: Any) -> list[Place]:
    """Where a suspended coroutine waits: its own frame first, the innermost last.

    A running coroutine has its own frame only: the rest is on the stack of its thread. One that is not written in
    Python has none."""
    places = [_place(frame) for frame in _frames(coroutine)]
    # The innermost frame of a future written in Python is of no interest.
    return [place for place in places if place.name != "Future.__await__"]


def _frames(coroutine: Any) -> Iterator[FrameType]:
    for _ in range(_DEEPEST):
        for name in ("cr_frame", "gi_frame", "ag_frame"):
            frame = getattr(coroutine, name, None)
            if frame is not None:
                yield frame
                break
        coroutine = _awaited(coroutine)
        if coroutine is None:
            break


def _awaited(coroutine: Any) -> Any:
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        awaited = getattr(coroutine, name, None)
        if awaited is not None:
            return awaited
    driven = _WRAPPERS.get(type(coroutine).__name__)
    if driven is not None:
        return next((referent for referent in gc.get_referents(coroutine) if isinstance(referent, driven)), None)
    return None


def _place(frame: FrameType) -> Place:
    code = frame.f_code
    return Place(code.co_filename, frame.f_lineno or 0, code.co_qualname)


def running_chain(coroutine: Any, stack: list[tuple[FrameType, int]]) -> list[Place]:
    """The running task's part of its thread's stack; if that does not show the coroutine, its await_chain()."""
    own = next(_frames(coroutine), None)
    at = next((at for at, (frame, _) in enumerate(stack) if frame is own), len(stack))
    places = [Place(frame.f_code.co_filename, line, frame.f_code.co_qualname) for frame, line in stack[at:]]
    return places or await_chain(coroutine)


def running_place(chain: list[Place]) -> Place | None:
    """Where the running task is: the innermost place of its running_chain() that is not in the standard library."""
    return next((place for place in reversed(chain) if not is_of_stdlib(place.filename)), None) or waiting_place(chain)


def function_name(coroutine: Any) -> str:
    """The qualified name of a coroutine's function; if it has none, that of the coroutine's type."""
    return getattr(coroutine, "__qualname__", None) or type(coroutine).__qualname__


def summary(task: "asyncio.Task[Any]") -> str:
    """One line: the task's name, its coroutine, and the innermost place where it waits."""
    coroutine = task.get_coro()
    text = f"{task.get_name()}: {function_name(coroutine)}()"
    chain = await_chain(coroutine)
    if chain:
        text += f", at {chain[-1].filename}:{chain[-1].line} in {chain[-1].name}()"
    return text


def waiters(future: Any) -> list[Any]:
    """The tasks, and other futures, that wait for `future`, sorted by name."""
    found = getattr(future, "_asyncio_awaited_by", None)
    if found is None and hasattr(future, "_callbacks"):
        found = awaited_by(future)
    return sorted(found or (), key=name_key)


def name_key(future: Any) -> list[tuple[int, str]]:
    """A sort key: Task-9 comes before Task-10."""
    return words_key(name_of(future).replace("-", " ").replace("'", " ").split())


def words_key(words: list[str]) -> list[tuple[int, str]]:
    """A sort key that compares numbers by their size. int() would refuse one of more than 4300 digits."""
    return [(len(digits := word.lstrip("0")), digits) if word.isdecimal() else (-1, word) for word in words]


def name_of(future: Any) -> str:
    """A task's name in quotes; for another future, its type."""
    if hasattr(future, "get_name"):
        return f"task {future.get_name()!r}"
    return f"a {type(future).__name__}"


def describe_waiters(task: Any) -> list[str]:
    """The tasks that wait for a task, and those that wait for them: a line each, indented by two spaces per step."""
    lines: list[str] = []
    seen = {task}
    found = [(waiter, "") for waiter in reversed(waiters(task))]
    while found and len(lines) < _DEEPEST:
        waiter, indent = found.pop()
        if waiter in seen:
            continue
        seen.add(waiter)
        place = own_place(waiter.get_coro()) if hasattr(waiter, "get_coro") else None
        at = "" if place is None else f", at {place.filename}:{place.line} in {place.name}()"
        lines.append(f"{indent}{name_of(waiter)}{at}")
        found += ((further, indent + "  ") for further in reversed(waiters(waiter)))
    return lines


def own_place(coroutine: Any) -> Place | None:
    """The line of the program at which the coroutine waits: see waiting_place()."""
    return waiting_place(await_chain(coroutine))


def waiting_place(chain: list[Place]) -> Place | None:
    """The innermost place of an await_chain() that is not in asyncio."""
    own = [place for place in chain if not is_of_asyncio(place.filename)]
    return own[-1] if own else None
