"""For tests of asyncio.as_completed(): all that an iterator gives."""

import sys

import pytest
from support.comparing import outcome_of

with_iterator = pytest.mark.skipif(
    sys.version_info < (3, 13), reason="as_completed() is a generator before CPython 3.13"
)


def raise_(error):
    raise error


async def all_of(iterator):
    return [await outcome_of(each) for each in iterator]


async def all_in(iterator):
    """The same for an asynchronous iterator; it ends at the first exception."""
    found = []
    try:
        async for each in iterator:
            found.append((type(each).__name__, await outcome_of(each)))
    except BaseException as error:
        found.append(repr(error))
    return found
