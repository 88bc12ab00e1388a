from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.transports.base cimport Transport


cdef class SocketTransport(Transport):
    cdef object sock                # the Python socket object; None: not made yet, because nothing has asked for it
    cdef bint exposed               # the program has, or had, the socket object or the number, and may have closed it
    cdef bint given_away            # the program has the number or a duplicate, and may use it at any time
    cdef object wrapper             # the FlushingSocket, which has a reference to the socket object; None: not made yet
    cdef unsigned int generation    # of the registration with the poller, while `attached`
    cdef bytes peer                 # the peer's raw address; None: it is in `extra`, or was never asked for
    cdef bint edge_triggered        # registered edge-triggered: POLLER_EDGE
    cdef bint reading               # reads are wanted
    cdef bint blocked               # the kernel takes no more, until POLLER_WRITE

    cdef int adopt_socket(self, object sock, object extra, bint exposed) except -1
    cdef bint set_no_delay(self) except -1
    cdef bint is_tcp(self) except -1
    cdef int usable_fd(self) noexcept
    cdef int check_socket(self) except -1
    cdef int expose(self) except -1
    cdef int give_away(self) except -1
    cdef bint is_used_by_program(self) noexcept
    cdef bint update_interest(self) except -1
    cdef int wait_until_writable(self) except -1
    cdef bint is_attached(self) noexcept
    cdef int reserve(self, LoopCore loop) except -1
    cdef int attach(self, int events) except -1
    cdef int close_descriptor(self) except -1
    cdef object socket_object(self)
