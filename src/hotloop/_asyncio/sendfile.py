"""sendfile() of what the kernel cannot send itself: asyncio's, with three mistakes of it mended.

While the file is sent, another protocol stands in for the program's. asyncio puts the program's protocol back without
a look at whether the transport has paused writing meanwhile. If so, its resume_writing() is called though its
pause_writing() was not, which asyncio's own StreamReaderProtocol refuses with an AssertionError.

asyncio reads all blocks of the file into one bytearray. Since Python 3.12 its transports keep what they are given, not
a copy of it, so a block overwrites the one before as long as that waits for the socket, and the peer gets other bytes.

asyncio's stand-in sets the future for which sendfile() waits without a look at whether it is cancelled. If it is, the
exception keeps connection_lost() from the program's protocol.

Source: asyncio/base_events.py.
"""

from types import FunctionType
from typing import Any

from hotloop._asyncio.internals import base_events
from hotloop._asyncio.mixin import Behind


class StandIn(base_events._SendfileFallbackProtocol):  # type: ignore[misc]
    """The protocol while a file is sent."""

    _write_ready_fut: Any
    _lost = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost = True
        self._should_resume_writing = False  # nothing is called after connection_lost()
        self.forget_cancelled_wait()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self.forget_cancelled_wait()
        super().resume_writing()

    def forget_cancelled_wait(self) -> None:
        """The task, or restore(), may have cancelled the future since."""
        if self._write_ready_fut is not None and self._write_ready_fut.cancelled():
            self._write_ready_fut = None

    async def restore(self) -> None:
        await super().restore()
        if self._transport._protocol_paused and not self._lost:
            self._proto.pause_writing()


def view_of_new_block(block: bytearray) -> memoryview:
    """Stands for memoryview() where asyncio takes its one bytearray again."""
    return memoryview(bytearray(len(block)))


own_fallback: Any = base_events.BaseEventLoop._sendfile_fallback


class SendfileFallback(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of asyncio.SelectorEventLoop."""

    # The running Python's own, because versions differ in where a file begins and in what they wait for.
    _sendfile_fallback: Any = FunctionType(
        own_fallback.__code__,
        {**vars(base_events), "_SendfileFallbackProtocol": StandIn, "memoryview": view_of_new_block},
        own_fallback.__name__,
    )
