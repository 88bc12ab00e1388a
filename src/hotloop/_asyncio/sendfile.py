"""sendfile() of what the kernel cannot send itself: asyncio's, with pause_writing() and resume_writing() in pairs.

While the file is sent, another protocol stands in for the program's. asyncio puts the program's protocol back without
a look at whether the transport has paused writing meanwhile. If so, its resume_writing() is called though its
pause_writing() was not, which asyncio's own StreamReaderProtocol refuses with an AssertionError.

Source: asyncio/base_events.py.
"""

from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import base_events

BLOCK_SIZE = 16384  # bytes; asyncio's

if TYPE_CHECKING:
    # A mixin, in front of asyncio's loop.
    _Behind = Any
else:
    _Behind = object


class StandIn(base_events._SendfileFallbackProtocol):  # type: ignore[misc]
    """The protocol while a file is sent."""

    _lost = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost = True
        self._should_resume_writing = False  # nothing is called after connection_lost()
        super().connection_lost(exc)

    async def restore(self) -> None:
        await super().restore()
        if self._transport._protocol_paused and not self._lost:
            self._proto.pause_writing()


class SendfileFallback(_Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of asyncio.SelectorEventLoop."""

    async def _sendfile_fallback(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if offset:
            file.seek(offset)
        block_size = min(count, BLOCK_SIZE) if count else BLOCK_SIZE
        buffer = memoryview(bytearray(block_size))
        sent = 0
        protocol = StandIn(transp)
        try:
            while True:
                if count:
                    block_size = min(count - sent, block_size)
                    if block_size <= 0:
                        return sent
                read = await self.run_in_executor(None, file.readinto, buffer[:block_size])
                if not read:
                    return sent
                await protocol.drain()
                transp.write(buffer[:read])
                sent += read
        finally:
            if sent > 0 and hasattr(file, "seek"):
                file.seek(offset + sent)
            await protocol.restore()
