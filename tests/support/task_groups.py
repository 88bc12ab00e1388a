"""For tests of asyncio.TaskGroup: its attributes, and results in an order that two runs share."""

import asyncio

from support.same_outcome import normal

ATTRIBUTES = [name for name in vars(asyncio.TaskGroup()) if name not in ("_loop", "_parent_task", "_on_completed_fut")]
CAN_BE_CANCELLED = hasattr(asyncio.TaskGroup, "cancel")


def attributes(group):
    return {name: normal(repr(getattr(group, name))) for name in ATTRIBUTES}


def ordered(found):
    """The same, with everything sorted that may have come in the order of a set."""
    if isinstance(found, dict):
        return {name: sorted(text) for name, text in found.items()}
    if isinstance(found, list):
        return sorted(str(ordered(item)) for item in found)
    return tuple(map(ordered, found)) if isinstance(found, tuple) else found
