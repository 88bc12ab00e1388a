from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.transports.base cimport Transport
from hotloop._c.transports.write_queue cimport write_queue


cdef class PipeTransport(Transport):
    cdef object pipe                # the file object, closed with the transport; None: closed or never opened
    cdef bint registered            # with the poller, for one direction at least

    cdef int add_interest(self, int event) except -1
    cdef int remove_interest(self, int event) except -1
    cdef int on_file_closed(self) except -1
    cdef int check_descriptor(self) except -1
    cdef int forget_descriptor(self) except -1


cdef class ReadPipeTransport(PipeTransport):
    cdef bint estimates             # reads may be smaller than max_size: what they leave comes with the next one
    cdef Py_ssize_t next_read_size  # the size of the next read in bytes, estimated from the last one; 0: it is small

    cdef bytes read(self, Py_ssize_t *count)
    cdef int on_eof(self) except -1


cdef class WritePipeTransport(PipeTransport):
    cdef write_queue unsent         # written, and not yet taken by the kernel
    cdef Py_ssize_t ignored_writes  # writes since the transport began to close
    cdef bint shows_hang_up         # the descriptor becomes readable when the reader closes

    cdef object ask_for_memory(self, object data)
    cdef int send(self, object data) except -1
    cdef int enqueue(self, object data, Py_ssize_t start) except -1
    cdef int send_queued(self) except -1
    cdef int on_reader_closed(self) except -1
    cdef int ignore_write(self) except -1


cdef ReadPipeTransport open_read_pipe(LoopCore loop, object pipe, object protocol, object waiter, object extra)
cdef WritePipeTransport open_write_pipe(LoopCore loop, object pipe, object protocol, object waiter, object extra)
