from hotloop._c.transports.protocol_kind cimport ProtocolKind
from hotloop._c.transports.socket_transport cimport SocketTransport


cdef class StreamReceiver(SocketTransport):
    cdef ProtocolKind kind          # how the protocol takes data
    cdef Py_ssize_t next_read_size  # bytes, estimated from the last read; 0: few. What a StreamReader gets room for
    cdef bint buffer_filled         # the last read filled its buffer

    cdef int receive(self) except -1
    cdef int receive_plain(self) except -1
    cdef int receive_buffered(self) except -1
    cdef Py_ssize_t receive_by_socket_object(self, object buffer) except? -1
    cdef int receive_compiled(self) except -1
    cdef int receive_stream(self) except -1
    cdef bint check_read(self, Py_ssize_t count, Py_ssize_t room) except -1
    cdef int on_eof(self) except -1
