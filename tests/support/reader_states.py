"""For tests of asyncio.StreamReader: its names, its state, and a transport that it can pause."""

import re

READS = ("read", "readexactly", "readuntil", "readline", "__anext__")


def text_of(error):
    """An exception's text without addresses, and without the module that a missing field's has since Python 3.13."""
    return type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error)).replace("'asyncio.streams.", "'")


def described(error):
    """All that a program can see of an exception."""
    if error is None:
        return None
    return (
        *text_of(error),
        getattr(error, "partial", None),
        getattr(error, "consumed", None),
        described(error.__cause__),
        described(error.__context__),
    )


async def outcome(awaitable):
    """What awaiting it returns or raises, to be compared with another's."""
    try:
        return await awaitable
    except Exception as error:
        return described(error)


def call_outcome(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:
        return described(error)


class Pausable:
    """A transport that only counts how often it is paused and resumed."""

    def __init__(self, log, *, can_pause=True):
        self.log = log
        self.can_pause = can_pause

    def pause_reading(self):
        if not self.can_pause:
            raise NotImplementedError
        self.log.append("paused")

    def resume_reading(self):
        self.log.append("resumed")

    def __repr__(self):
        return "<Pausable>"


def state_of(reader):
    waiting = reader._waiter is not None
    return bytes(reader._buffer), reader._eof, waiting, repr(reader._exception), reader._paused, reader.at_eof()


NAMES = ("_limit", "_loop", "_buffer", "_eof", "_waiter", "_exception", "_transport", "_paused")


def arguments_of(method):
    return {"read": (5,), "readexactly": (3,), "readuntil": (b"\n",)}.get(method, ())
