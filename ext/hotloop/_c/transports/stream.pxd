from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.transports.stream_receiver cimport StreamReceiver
from hotloop._c.transports.write_queue cimport write_queue


cdef class StreamTransport(StreamReceiver):
    cdef object server              # the asyncio.Server to which the connection belongs, or None
    cdef write_queue unsent         # written, and not yet taken by the kernel
    cdef bint eof_written           # write_eof() was called
    cdef bint unflushed             # on the loop's list of what to flush at the end of the turn
    cdef bint write_failing         # the kernel has refused a write, and the connection is being closed because of it
    cdef bint lent                  # sendfile() waits for the descriptor, by a registration of its own
    cdef object empty_waiter        # the future by which sendfile() waits until all is written, or None

    cdef object ask_for_memory(self, object data)
    cdef bint enqueue(self, object data) except -1
    cdef int send_soon(self) except -1
    cdef int send_now(self) except -1
    cdef int send_queued(self) except -1
    cdef bint send_uncopied(self, object data, Py_ssize_t *sent) except -1
    cdef int write_failed(self, object error) except -1
    cdef int flush_if_broken(self) except -1
    cdef bint may_wait(self, size_t size) noexcept
    cdef int wake_sendfile(self) except -1
    cdef bint is_lent(self) noexcept
    cdef bint is_sending(self) noexcept
    cdef int sent_all(self) except -1
    cdef int check_writable(self, str method) except -1

    cdef inline bint sends_file(self) noexcept:
        """sendfile() is in progress: what is written now would come between the parts of the file."""
        return self.empty_waiter is not None


cdef StreamTransport open_stream(
    LoopCore loop, object sock, bint exposed, object protocol, object context, object waiter, object extra,
    object server
)
cdef StreamTransport open_accepted(
    LoopCore loop, int fd, bytes peer, bint tcp, object protocol, object context, object server
)
