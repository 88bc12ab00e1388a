"""The transport of stream sockets: asyncio's, which also recognizes a buffered protocol by its methods."""

from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import selector_events
from hotloop._pure.transports.protocol_kind import takes_buffers

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
