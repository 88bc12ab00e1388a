from hotloop._c.poller.watcher cimport Watcher


cdef enum ProtocolKind:
    PLAIN                           # data_received()
    BUFFERED                        # get_buffer() and buffer_updated()
    STREAM_READER                   # asyncio.StreamReaderProtocol itself, or the compiled one: see reader_feed.pyx
    COMPILED                        # ByteProtocol.bytes_received()


cdef class ByteProtocol(Watcher):
    cdef int bytes_received(self, const char *data, Py_ssize_t size) except -1
    cdef int flush_early(self) except -1


cdef ProtocolKind kind_of(object protocol) except *
