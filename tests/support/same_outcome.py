"""What can be seen of an outcome, tracebacks included: for tests of compiled objects beside asyncio's own."""

import functools
import re
import traceback

from support.comparing import description
from support.compiled import keeps_traceback_entries

import hotloop.asyncio

VARYING = re.compile(r"0x[0-9a-f]+|Task-\d+")


def normal(text):
    """The text without addresses and the numbers of tasks."""
    return VARYING.sub("...", text)


@functools.cache
def is_debug_build():
    loop = hotloop.new_event_loop()
    try:
        return keeps_traceback_entries(loop)
    finally:
        loop.close()


def names_of_frames(error):
    """Those of its traceback; without those of compiled code, which a debug build keeps."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if not (is_debug_build() and frame.filename.endswith(".pyx"))]


def description_with_frames(error):
    """All that can be seen of an exception, with its traceback."""
    return description(error, also=names_of_frames)


async def outcome_with_frames(awaitable):
    """What an await returns or raises, a cancellation included, with its traceback."""
    try:
        return await awaitable
    except BaseException as error:
        return description_with_frames(error)


def shown(future):
    """A future and its callbacks."""
    return normal(repr(future)), [normal(repr(callback)) for callback, _ in future._callbacks or ()]


class ComparedCallback:
    """A callback that notes what it is compared with, and when it is called."""

    __hash__ = None

    def __init__(self, seen):
        self.seen = seen

    def __eq__(self, other):
        self.seen.append(normal(repr(other)))
        return False

    def __call__(self, future):
        self.seen.append("called")
