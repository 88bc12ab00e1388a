"""For tests of asyncio.wait(): its conditions, and its results as numbers."""

import asyncio

from support.comparing import outcome_of

WHEN = [asyncio.ALL_COMPLETED, asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION]


def numbers(futures, result):
    """Which of the futures wait() has found done and pending."""
    if len(result) != 2:
        return result
    return tuple(sorted(futures.index(future) for future in found) for found in result)


async def awaited(futures, waiting):
    """What an await of wait() returns or raises."""
    found = await outcome_of(waiting)
    return numbers(futures, found) if isinstance(found[0], set) else found
