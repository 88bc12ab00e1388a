"""NetworkCore: LoopCore with what hotloop adds to a loop's I/O.

The transports are the standard library's, which are written in Python already.
"""

from hotloop._pure.core import FallbackLoopCore, LoopCore


class NetworkCore(LoopCore):
    """The I/O of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""


class FallbackNetworkCore(NetworkCore, FallbackLoopCore):
    """The same on the loop that hands out the interpreter's own futures and tasks."""
