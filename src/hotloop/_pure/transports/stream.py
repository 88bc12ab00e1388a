"""The transport of stream sockets: asyncio's, which also recognizes a buffered protocol by its methods.

Faults of asyncio's transport by which data is lost or a loop spins are mended here, too.
"""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import selector_events
from hotloop._asyncio.writelines import SKIPS_FALSY_ITEMS
from hotloop._pure.transports.protocol_kind import takes_buffers
from hotloop._pure.transports.views import as_single_bytes

# asyncio's transports allocate 256 KiB for each read and give most of it back at once. glibc maps, faults in and unmaps
# such a block each time, which costs four times the rest of the read, until it has freed a larger one; from then on it
# takes the block from the heap.
len(bytes(1 << 20))

if TYPE_CHECKING:
    _SocketTransport = Any
else:
    _SocketTransport = selector_events._SelectorSocketTransport


class _SelectorSocketTransport(_SocketTransport):  # type: ignore[misc]
    """The name is asyncio's, because it appears in a transport's repr()."""

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio.BaseTransport."""
        super().set_protocol(protocol)
        if takes_buffers(protocol):
            self._read_ready_cb = self._read_ready__get_buffer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.WriteTransport."""
        super().write(as_single_bytes(data))

    if sys.version_info >= (3, 12):

        def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
            """See asyncio.WriteTransport.

            asyncio's own, up to CPython 3.14.9, pauses no protocol, fails on a closed transport, and queues empty
            chunks: the loop then spins, because a socket is writable and nothing can be taken from the queue."""
            if self._eof or self._empty_waiter is not None:
                super().writelines(list_of_data)  # raises RuntimeError
            elif list_of_data and self._conn_lost:
                self.write(b"lost")  # counts it; as since CPython 3.14.10, the items are not looked at
            elif list_of_data:
                chunks: Iterable[Any] = filter(None, list_of_data) if SKIPS_FALSY_ITEMS else list_of_data
                views = [view for view in (memoryview(chunk) for chunk in chunks) if view.nbytes]
                gapped = [view for view in views if not view.c_contiguous]
                # As under asyncio the kernel refuses a view with gaps, and nothing is sent.
                data: Any = gapped[0] if gapped else b"".join(views)
                # None: until CPython 3.13.0 close() drops it, and asyncio's own raises TypeError.
                if self._buffer and self._write_ready is not None:
                    # As asyncio's own: the kernel is asked whether it has room again.
                    if data:
                        self._buffer.append(memoryview(data))
                    self._write_ready()
                    if self._buffer:
                        self._maybe_pause_protocol()
                else:
                    self.write(data)
