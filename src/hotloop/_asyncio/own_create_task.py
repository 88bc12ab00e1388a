"""Whether BaseEventLoop.create_task() is asyncio's own, which hotloop's loops need not call."""

from asyncio import base_events
from types import FunctionType


def create_task_is_asyncios() -> bool:
    """False if a program has put another function in its place, or, as ddtrace does, another code into the function."""
    function = base_events.BaseEventLoop.create_task
    return (
        type(function) is FunctionType
        and function.__globals__ is vars(base_events)
        and "_check_closed" in function.__code__.co_names
    )
