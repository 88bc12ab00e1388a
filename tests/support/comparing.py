"""Runs the same test with asyncio's own objects and with the compiled ones, and compares what both find."""

import asyncio
import re

import pytest
from support.endpoints import turns

import hotloop.asyncio

on_both_loops = pytest.mark.only("c", "asyncio", reason="hotloop.asyncio is compiled; it works on both loops")
on_hotloop = pytest.mark.only("c", reason="what only hotloop's loop does")

BOTH = (asyncio, hotloop.asyncio)


def outcome(call, *arguments, **keywords):
    """What a call returns or raises, a cancellation included, to be compared with another's."""
    try:
        return call(*arguments, **keywords)
    except BaseException as error:
        return description(error)


async def outcome_of(awaitable):
    """What an await returns or raises, a cancellation included."""
    try:
        return await awaitable
    except BaseException as error:
        return description(error)


def description(error, *, depth=6, also=lambda error: None):
    """All that a program can see of an exception, to be compared with another's: with those that it holds, and those
    that led to it, as far as `depth`. `also(error)` adds to that."""
    if error is None or depth == 0:
        return None

    def related(other):
        return description(other, depth=depth - 1, also=also)

    return (
        type(error).__name__,
        text_of(error),
        getattr(error, "partial", None),
        getattr(error, "consumed", None),
        [related(held) for held in getattr(error, "exceptions", ())],
        related(error.__cause__),
        related(error.__context__),
        error.__suppress_context__,
        also(error),
    )


def text_of(error):
    """Its text, without what depends on more than the error: addresses, and the module that the class of a C field has
    in it from Python 3.12 on. What is said of an exception of the wrong type depends on the object that it was thrown
    into."""
    text = re.sub(r"0x[0-9a-f]+", "0x", str(error)).removesuffix(", not str")
    return re.sub(r"'asyncio\.\w+\.(\w+)' object", r"'\1' object", text)


def same_on_both(loop, test):
    """Run `test`, a coroutine function, with each version of asyncio; both must give the same."""
    own, compiled = (loop.run_until_complete(test(module)) for module in BOTH)
    assert own == compiled, f"asyncio: {own}\ncompiled: {compiled}"
    return own


def pending_timers(loop):
    return len([handle for handle in loop._scheduled if not handle.cancelled()])


async def give(value, after=1):
    await turns(after)
    return value


async def fail(error, after=1):
    await turns(after)
    raise error


def run_through(loop, kind):
    """Run the loop for some turns, each time until an error ends it; return how often that was."""
    for ends in range(5):
        try:
            loop.run_until_complete(turns(10))
        except kind:
            continue
        return ends


class Awaitable:
    def __init__(self, value=1):
        self.value = value

    def __await__(self):
        yield
        return self.value
