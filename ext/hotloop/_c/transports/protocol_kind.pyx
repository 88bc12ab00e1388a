"""How a protocol takes received data: decided once, when the protocol is set, not for every packet."""

from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.transports.reader_feed cimport is_stream_reader_protocol

from asyncio import protocols

cdef object BufferedProtocol = protocols.BufferedProtocol


cdef class ByteProtocol(Watcher):
    """A compiled protocol. For transports that cannot call bytes_received(), a subclass must also implement
    asyncio.BufferedProtocol."""

    cdef int bytes_received(self, const char *data, Py_ssize_t size) except -1:
        """Take bytes in place. They lie in the loop's buffer, so they are valid only until other code is called."""
        raise NotImplementedError

    cdef int flush_early(self) except -1:
        """Pass this turn's writes to the transport: see Transport.flush_early()."""
        return 0


cdef ProtocolKind kind_of(object protocol) except *:
    if isinstance(protocol, ByteProtocol):
        return COMPILED
    if is_stream_reader_protocol(protocol):
        return STREAM_READER
    return BUFFERED if takes_buffers(protocol) else PLAIN


cdef bint takes_buffers(object protocol) except -1:
    """Whether the protocol is an asyncio.BufferedProtocol or, as in uvloop, has its methods. A protocol of another
    class that also has data_received() does not count, because asyncio would call data_received()."""
    return isinstance(protocol, BufferedProtocol) or (
        not hasattr(protocol, "data_received")
        and hasattr(protocol, "get_buffer")
        and hasattr(protocol, "buffer_updated")
    )
