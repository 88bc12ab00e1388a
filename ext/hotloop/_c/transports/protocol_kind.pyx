"""How a protocol takes what has arrived for it: asked once, when the protocol is set, not for every packet."""

from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.transports.stream_reader cimport is_stream_reader_protocol

from asyncio import protocols

cdef object BufferedProtocol = protocols.BufferedProtocol


cdef class ByteProtocol(Watcher):
    """A protocol in C. To all who do not know that, a subclass has to be an asyncio.BufferedProtocol."""

    cdef int bytes_received(self, const char *data, Py_ssize_t size) except -1:
        """Take the bytes where they lie: in the loop's buffer, which is valid until somebody else is called."""
        raise NotImplementedError

    cdef int flush_early(self) except -1:
        """Give the transport what was written in this turn: see Transport.flush_early()."""
        return 0


cdef ProtocolKind kind_of(object protocol) except *:
    if isinstance(protocol, ByteProtocol):
        return COMPILED
    if is_stream_reader_protocol(protocol):
        return STREAM_READER
    return BUFFERED if takes_buffers(protocol) else PLAIN


cdef bint takes_buffers(object protocol) except -1:
    """Whether it is an asyncio.BufferedProtocol, or, as uvloop takes it, one by its methods alone. What has
    data_received(), too, is none: under asyncio that is what is called."""
    return isinstance(protocol, BufferedProtocol) or (
        not hasattr(protocol, "data_received")
        and hasattr(protocol, "get_buffer")
        and hasattr(protocol, "buffer_updated")
    )
