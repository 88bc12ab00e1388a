"""What compiled coroutines need Python code for: frames and creation places, and the errors of `await`.

A tool that shows where a task waits asks its coroutine for a frame. What a compiled coroutine gives is a frame of
asyncio's own function, at the line of the `await`: what the tool would have shown without the compiled layer.
"""

import dis
import functools
import sys
from asyncio import tasks
from collections.abc import Generator
from types import CodeType, CoroutineType, FrameType, FunctionType
from typing import Any, NoReturn


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def _waits() -> None:
    await ...  # type: ignore[misc]


def stand_in(function: FunctionType, arguments: tuple[object, ...], awaits: int) -> "CoroutineType[Any, Any, Any]":
    """A coroutine whose frame is to be shown as one of `function`: with its name and arguments, at the line of that
    `await` of its code, counted from 1; with 0 at its first line.

    It waits, so that the frame belongs to a coroutine as long as the stand-in is kept, and it can be dropped."""
    own, model = function.__code__, _waits.__code__
    line = _line_of_await(own, awaits) if awaits else own.co_firstlineno
    names = own.co_varnames[: own.co_argcount]
    code = model.replace(
        co_filename=own.co_filename,
        co_name=own.co_name,
        co_qualname=own.co_qualname,
        co_firstlineno=line - 1,  # the model's `await` is one line below its first
        co_argcount=len(names),
        co_nlocals=len(names),
        co_varnames=names,
        co_consts=tuple(_Pause() if value is ... else value for value in model.co_consts),
    )
    copy: Any = FunctionType(code, function.__globals__)
    coroutine: CoroutineType[Any, Any, Any] = copy(*(*arguments, *[None] * len(names))[: len(names)])
    coroutine.send(None)
    return coroutine


@functools.cache
def _line_of_await(code: CodeType, awaits: int) -> int:
    """The line of that `await`, or of the first one if there are not so many."""
    lines = [
        found.positions.lineno
        for found in dis.get_instructions(code)
        if found.opname == "GET_AWAITABLE" and found.positions and found.positions.lineno
    ]
    if not lines:
        return code.co_firstlineno
    return lines[awaits - 1] if awaits <= len(lines) else lines[0]


def bare_yield() -> Generator[Any, Any, Any]:
    """What a coroutine awaits that lets one iteration pass: asyncio's generator, at its `yield`."""
    generator: Generator[Any, Any, Any] = getattr(tasks, "__sleep0")()
    generator.send(None)
    return generator


def refuse_to_await(awaitable: object, iterator: object) -> NoReturn:
    """Raise what `await awaitable` raises, if its __await__() has returned `iterator`; None: it has no __await__().

    Each Python has its own texts."""

    async def wait() -> None:
        await refused  # type: ignore[misc]

    refused = awaitable
    if iterator is not None:
        cls = type(awaitable)
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__await__": lambda self: iterator}
        refused = type(cls.__name__, (), names)()
    try:
        wait().send(None)
    except TypeError as error:
        error.__traceback__ = None
        raise
    raise TypeError("object can't be used in 'await' expression")


def creation_origin(depth: int) -> tuple[tuple[str, int, str], ...]:
    """What a coroutine has in `cr_origin`: the innermost `depth` frames, as (file, line, function)."""
    origin: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(origin) < depth:
        origin.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(origin)
