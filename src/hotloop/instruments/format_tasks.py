"""format_tasks(): all tasks of a loop as text, with where each waits, for what, and which tasks wait for it."""

import asyncio
import threading
from typing import Any

from hotloop.instruments.chains import await_chain, function_name, name_key, name_of, waiters
from hotloop.instruments.stacks import format_stack, stack_of_loop

_NAMED_AT_MOST = 5
"""The number of tasks in a list that are named; the others are counted."""


def format_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return all tasks of an event loop as text: names, states, what they wait for, where, and which tasks await them.

    Each task has the lines of its await chain, innermost last; the running task has the stack of the loop's thread. Any
    thread may call this; tasks may change while it looks. The loop may be any asyncio event loop.
    """
    tasks = sorted(asyncio.all_tasks(loop), key=name_key)
    running = asyncio.current_task(loop)
    awaited = _awaited_tasks(tasks)
    lines = [f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} of {describe_loop(loop)}"]
    if running is None and _in_callback(loop):
        lines += ["", "no task runs, but a callback:", *format_stack(stack_of_loop(loop))]
    for task in tasks:
        runs = task is running
        lines += ["", _describe(task, "runs" if runs else _waiting(task, awaited.get(task, [])))]
        lines += format_stack(stack_of_loop(loop)) if runs else [f"  {place}" for place in await_chain(task.get_coro())]
    return "\n".join(lines) + "\n"


def describe_loop(loop: Any) -> str:
    thread_id = getattr(loop, "_thread_id", None)
    if thread_id is None:
        return repr(loop)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return f"the event loop in thread {names.get(thread_id, thread_id)!r}"


def _awaited_tasks(tasks: list[Any]) -> dict[Any, list[Any]]:
    """The tasks that each task waits for, including those in a gather(), a wait() or a TaskGroup."""
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
    # Since Python 3.14 the children of a gather() count as awaited by the task that called it, whichever awaits it.
    awaited = [child for child in getattr(future, "_children", ()) if not child.done()] or awaited
    if awaited:
        return f"waits for {_names(awaited)}"
    return f"waits for {name_of(future)}"


def _names(futures: list[Any]) -> str:
    names = [name_of(future) for future in futures[:_NAMED_AT_MOST]]
    rest = len(futures) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")


def _in_callback(loop: Any) -> bool:
    """Whether the loop is one of hotloop's and runs a callback."""
    return hasattr(loop, "_progress") and loop._progress() >= 0
