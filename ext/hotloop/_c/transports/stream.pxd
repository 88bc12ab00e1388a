from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.transports.protocol_kind cimport ProtocolKind
from hotloop._c.transports.socket_transport cimport SocketTransport
from hotloop._c.transports.write_queue cimport write_queue


cdef class StreamTransport(SocketTransport):
    cdef object server              # the asyncio.Server to which the connection belongs, or None
    cdef ProtocolKind kind          # how the protocol takes data
    cdef write_queue unsent         # written, and not yet taken by the kernel
    cdef Py_ssize_t next_read_size  # the size of the next read in bytes, estimated from the last one

    cdef bint buffer_filled         # the last read filled its buffer
    cdef bint eof_received
    cdef bint eof_written           # write_eof() was called
    cdef bint unflushed             # on the loop's list of what to flush at the end of the turn
    cdef bint write_failing         # the kernel has refused a write, and the connection is being closed because of it
    cdef object empty_waiter        # the future by which sendfile() waits until all is written, or None

    cdef int adopt_protocol(self, object protocol) except -1
    cdef int receive(self) except -1
    cdef int receive_plain(self) except -1
    cdef int receive_buffered(self) except -1
    cdef Py_ssize_t receive_by_socket_object(self, object buffer) except? -1
    cdef int receive_compiled(self) except -1
    cdef int receive_stream(self) except -1
    cdef bint check_read(self, Py_ssize_t count, Py_ssize_t room) except -1
    cdef int on_eof(self) except -1
    cdef bint enqueue(self, object data) except -1
    cdef int send_soon(self) except -1
    cdef int send_now(self) except -1
    cdef int send_queued(self) except -1
    cdef bint send_uncopied(self, object data, Py_ssize_t *sent) except -1
    cdef int write_failed(self, object error) except -1
    cdef int flush_if_broken(self) except -1
    cdef bint may_wait(self, size_t size) noexcept
    cdef int sent_all(self) except -1
    cdef int check_writable(self, str method) except -1


cdef StreamTransport open_stream(
    LoopCore loop, object sock, bint exposed, int fd, bytes peer, bint tcp, object protocol, object context,
    object waiter, object extra, object server
)
