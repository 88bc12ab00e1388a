"""How a protocol takes what has arrived for it: asked once, when the protocol is set, not for every packet."""

from hotloop._c.feed cimport is_fed_directly
from hotloop._c.watcher cimport Watcher

cdef extern from "quiet.h":
    pass

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
    if isinstance(protocol, BufferedProtocol):
        return BUFFERED
    return STREAM_READER if is_fed_directly(protocol) else PLAIN
