"""Runs one program with asyncio's own objects and with hotloop's compiled ones, and compares what it finds."""

import asyncio
import re
import traceback

import hotloop.asyncio

BOTH = (asyncio, hotloop.asyncio)
VARYING = re.compile(r"0x[0-9a-f]+|Task-\d+")


def normal(text):
    """The text without addresses and the numbers of tasks."""
    return VARYING.sub("...", text)


def same_on_both(loop, test):
    """Run `test`, a coroutine function, with each version of asyncio; both must give the same."""
    own, compiled = (loop.run_until_complete(test(module)) for module in BOTH)
    assert own == compiled
    return own


def describe(error):
    """What can be seen of an exception."""
    if error is None:
        return None
    return (
        type(error).__name__,
        str(error),
        [frame.name for frame in traceback.extract_tb(error.__traceback__)],
        describe(error.__cause__),
        describe(error.__context__),
        error.__suppress_context__,
        [describe(inner) for inner in getattr(error, "exceptions", ())],
    )


async def outcome(awaitable):
    """What an awaitable returns or raises."""
    try:
        return await awaitable
    except BaseException as error:
        return describe(error)


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)
