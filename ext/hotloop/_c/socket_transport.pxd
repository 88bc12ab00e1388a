from hotloop._c.transport cimport Transport


cdef class SocketTransport(Transport):
    cdef object sock                # Python's socket object; None until somebody asks for it, where the loop has none
    cdef bytes peer                 # the address of the peer as the kernel has told it; None: in `extra`, or not asked
    cdef bint reading               # reads are wanted
    cdef bint blocked               # the kernel takes no more, until POLLER_WRITE

    cdef int adopt(self, object sock, object extra) except -1
    cdef int close_descriptor(self) except -1
    cdef object socket_object(self)


cdef object name_of(int fd, object sock)
