"""Runs a loop from inside one of its own callbacks or tasks, as nest_asyncio does."""

import asyncio


def run_until_done(loop, future):
    """nest_asyncio's replacement of run_until_complete(), which works while the loop runs."""
    while not future.done():
        loop._run_once()
        if loop._stopping:
            break
    return future.result()


def nested(loop, coroutine):
    """Run a coroutine to its end from inside a callback or a task of the same loop."""
    running, current = asyncio._get_running_loop(), asyncio.current_task(loop)
    task = loop.create_task(coroutine)
    if current is not None:
        asyncio.tasks._leave_task(loop, current)
    try:
        return run_until_done(loop, task)
    finally:
        if current is not None:
            asyncio.tasks._enter_task(loop, current)
        asyncio._set_running_loop(running)
