"""The Python stack of a loop's thread, read from any thread: all of it, or the part that belongs to a callback."""

import threading
import traceback
from collections.abc import Sequence
from itertools import dropwhile
from types import FrameType
from typing import Any

from hotloop.instruments.origins import is_of_the_loop, ownership
from hotloop.instruments.threads import current_frames

_RUNNING = ("run_until_complete", "run_forever", "_run_once", "_run")
"""The functions of asyncio's and of hotloop's under which a loop runs its callbacks."""


def stack_of_thread(thread_id: int) -> list[tuple[FrameType, int]]:
    """The frames of a thread and their current lines, the innermost last; none if there is no such thread.

    If that thread itself asks, as in a signal handler, the frames of the instruments are left out."""
    frame = current_frames().get(thread_id)
    if thread_id == threading.get_ident():
        while frame is not None and frame.f_globals.get("__package__") == __package__:
            frame = frame.f_back
    return [] if frame is None else list(traceback.walk_stack(frame))[::-1]


def stack_of_loop(loop: Any) -> list[tuple[FrameType, int]]:
    """stack_of_thread() of the thread that the loop runs in; empty if it does not run."""
    return stack_of_thread(getattr(loop, "_thread_id", None) or 0)


def format_stack(stack: list[tuple[FrameType, int]]) -> list[str]:
    """A line for each frame."""
    return [f'  File "{f.f_code.co_filename}", line {line}, in {f.f_code.co_qualname}' for f, line in stack]


def callback_stack(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The part of the stack of a loop's thread that belongs to the callback which the loop runs.

    Empty if the loop itself has called a function that is not written in Python."""
    loops = (at for at in reversed(range(len(stack))) if stack[at].name in _RUNNING and _is_of_the_loop(stack[at]))
    called = list(stack[next(loops, -1) + 1 :])
    return list(dropwhile(_is_of_the_loop, called)) or called


def _is_of_the_loop(frame: traceback.FrameSummary) -> bool:
    return is_of_the_loop(frame.filename)


def own_frame(stack: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost frame of the program's own code; without any, of an installed package's; without any, of all."""
    return max(reversed(stack), key=lambda frame: ownership(frame.filename), default=None)
