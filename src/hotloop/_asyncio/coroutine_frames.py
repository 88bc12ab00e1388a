"""Frames and creation places for compiled coroutines, which have none of their own.

A tool that shows where a task waits asks its coroutine for a frame. What a compiled coroutine gives is a frame of
asyncio's own function, at the line of the `await`: what the tool would have shown without the compiled layer.
"""

import dis
import functools
import sys
from types import CodeType, CoroutineType, FrameType, FunctionType
from typing import Any


def frame_at(function: FunctionType, arguments: tuple[object, ...], waiting: bool) -> FrameType:
    """A frame of `function`: at the line of its first `await` if the coroutine is `waiting`, else at its first line."""
    code = _at_await(function.__code__) if waiting else function.__code__
    wanted = code.co_argcount
    filled = (*arguments, *[None] * wanted)[:wanted]
    keywords = dict.fromkeys(code.co_varnames[wanted : wanted + code.co_kwonlyargcount])
    copy: Any = FunctionType(code, function.__globals__, closure=function.__closure__)
    coroutine: CoroutineType[Any, Any, Any] = copy(*filled, **keywords)
    frame = coroutine.cr_frame
    assert frame is not None
    coroutine.close()
    return frame


@functools.cache
def _at_await(code: CodeType) -> CodeType:
    """`code`, as if it began at its first `await`."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.opname == "GET_AWAITABLE" and instruction.positions and instruction.positions.lineno:
            line = instruction.positions.lineno
            break
    return code.replace(co_firstlineno=line)


def creation_origin(depth: int) -> tuple[tuple[str, int, str], ...]:
    """What a coroutine has in `cr_origin`: the innermost `depth` frames, as (file, line, function)."""
    origin: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(origin) < depth:
        origin.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(origin)
