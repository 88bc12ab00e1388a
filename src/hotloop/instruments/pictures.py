"""Still pictures of all tasks of a loop, as text: where each waits, for what, and who waits for it."""

import asyncio
import threading
from types import FrameType
from typing import Any

from hotloop.instruments.chains import (
    await_chain,
    function_name,
    innermost,
    name_key,
    name_of,
    stack_of_thread,
    waiters,
)

_NAMED_AT_MOST = 5
"""So many of the tasks that a task waits for are named, and the others counted."""


def format_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """All tasks of an event loop as text: their names, states, what they wait for, who waits for them, and where.

    Each has the lines of its await chain, innermost last; the one that runs has the stack of the loop's thread. To be
    called from any thread, which is then told what was so while it looked. The loop may be any of asyncio's.
    """
    tasks = sorted(asyncio.all_tasks(loop), key=name_key)
    running = asyncio.current_task(loop)
    awaited = _awaited_tasks(tasks)
    lines = [f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} of {describe_loop(loop)}"]
    if running is None and _in_callback(loop):
        lines += ["", "no task runs, but a callback:", *stack_of(loop)]
    for task in tasks:
        runs = task is running
        lines += ["", _describe(task, "runs" if runs else _waiting(task, awaited.get(task, [])))]
        lines += stack_of(loop) if runs else [f"  {place}" for place in await_chain(task.get_coro())]
    return "\n".join(lines) + "\n"


def describe_loop(loop: Any) -> str:
    thread_id = getattr(loop, "_thread_id", None)
    if thread_id is None:
        return repr(loop)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return f"the event loop in thread {names.get(thread_id, thread_id)!r}"


def _awaited_tasks(tasks: list[Any]) -> dict[Any, list[Any]]:
    """For which tasks each waits, those in a gather(), a wait() or a TaskGroup included."""
    found: dict[Any, list[Any]] = {}
    for task in tasks:
        for waiter in waiters(task):
            found.setdefault(waiter, []).append(task)
    return found


def _describe(task: Any, state: str) -> str:
    text = f"{name_of(task)}, {function_name(task.get_coro())}(), {state}"
    if task.cancelling():
        text += "; was asked to cancel"
    found = waiters(task)
    if found:
        text += f"; awaited by {_names(found)}"
    return text


def _waiting(task: Any, awaited: list[Any]) -> str:
    future = getattr(task, "_fut_waiter", None)
    if future is None:
        return "ready to run"
    # Since Python 3.14 those of a gather() count as awaited by the task that has called it, whoever awaits that.
    awaited = [child for child in getattr(future, "_children", ()) if not child.done()] or awaited
    if awaited:
        return f"waits for {_names(awaited)}"
    awaitable = innermost(task.get_coro())
    if hasattr(awaitable, "cr_running") and not hasattr(awaitable, "cr_frame"):
        # A coroutine that is not written in Python: the chain does not show it.
        return f"waits for {function_name(awaitable)}()"
    return f"waits for {name_of(future)}"


def _names(futures: list[Any]) -> str:
    names = [name_of(future) for future in futures[:_NAMED_AT_MOST]]
    rest = len(futures) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")


def _in_callback(loop: Any) -> bool:
    """Whether the loop, one of hotloop's, runs anything at all."""
    return hasattr(loop, "_progress") and loop._progress() >= 0


def stack_of(loop: Any) -> list[str]:
    """The stack of the thread that the loop runs in, a line for each frame, without what looks at it from there."""
    return format_stack(stack_of_thread(getattr(loop, "_thread_id", None) or 0))


def format_stack(stack: list[tuple[FrameType, int]]) -> list[str]:
    """A line for each frame."""
    return [f'  File "{f.f_code.co_filename}", line {line}, in {f.f_code.co_qualname}' for f, line in stack]
