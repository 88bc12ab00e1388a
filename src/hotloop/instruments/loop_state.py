"""The state of a loop and its tasks as numbers and text: what `python -m hotloop top`, `ps` and `pstree` are sent.

It is read from outside, maybe while another thread runs the loop: the parts need not be of the same moment.
"""

import asyncio
import dataclasses
import os
import sys
import time
from typing import Any

from hotloop import __version__
from hotloop.instruments.chains import await_chain, function_name, running_chain, running_place, waiters, waiting_place
from hotloop.instruments.format_tasks import describe_loop
from hotloop.instruments.stacks import format_stack, stack_of_loop


def describe(loop: Any) -> dict[str, Any]:
    """The state of a loop, as numbers and text. If the loop is None or closed, that of the process only."""
    state: dict[str, Any] = {
        "hotloop": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "pid": os.getpid(),
        "time": time.monotonic(),
    }
    if loop is None or loop.is_closed():
        return state
    running = asyncio.current_task(loop)
    progress = loop._progress()
    stack = stack_of_loop(loop)
    return state | {
        "loop": describe_loop(loop),
        # Identifies the running callback; -1: none. An unchanged number means that the same callback still runs.
        "progress": progress,
        "task": None if running is None else running.get_name(),
        "stack": format_stack(stack) if progress >= 0 else [],
        "tasks": [_describe_task(task, stack if task is running else None) for task in asyncio.all_tasks(loop)],
        "metrics": dataclasses.asdict(loop.metrics()),
    }


def _describe_task(task: Any, stack: list[Any] | None) -> dict[str, Any]:
    """The state of a task. For the running task, `stack` is that of its thread; for others None."""
    coroutine = task.get_coro()
    if stack is not None:
        chain = running_chain(coroutine, stack)
        state, place = "runs", running_place(chain)
    else:
        chain = await_chain(coroutine)
        state = "ready" if getattr(task, "_fut_waiter", None) is None else "waits"
        place = waiting_place(chain)
    return {
        "id": id(task),
        "name": task.get_name(),
        "coroutine": function_name(coroutine),
        "state": state,
        "place": place,
        "chain": chain,
        "awaited_by": [id(waiter) for waiter in waiters(task)],
    }
