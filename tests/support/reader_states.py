"""For tests of asyncio's streams: a reader's names, its state, and a transport that it can pause."""

READS = ("read", "readexactly", "readuntil", "readline", "__anext__")


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
