from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.system.address cimport AddressCache, sockaddr_storage, socklen_t
from hotloop._c.transports.socket_transport cimport SocketTransport


cdef class DatagramTransport(SocketTransport):
    cdef object address             # remote_addr of create_datagram_endpoint(), or None
    cdef AddressCache addresses     # the loop's, shared by all its datagram transports
    cdef object sender              # the last datagram's sender, as the protocol was given it; None at first
    cdef sockaddr_storage sender_raw    # the same, as the kernel returned it
    cdef socklen_t sender_length    # in bytes
    cdef int family                 # of the socket's addresses
    cdef bint native                # this transport makes the system calls; else the socket object does
    cdef bint connected             # the kernel knows the address of the peer
    cdef bint ending_well           # connection_lost() was called because all is sent: it may send more
    cdef object queue               # a deque of (bytes, address) that wait for POLLER_WRITE; None: none has waited yet
    cdef Py_ssize_t queued_bytes    # in `queue`, as flow control counts them; 0: none are waiting

    cdef bint receive(self) except -1
    cdef bint receive_by_socket_object(self) except -1
    cdef bint send(self, object data, object address) except -1
    cdef bint send_native(self, object data, object address, const sockaddr_storage *to, socklen_t length) except -1
    cdef bint send_by_socket_object(self, object data, object address) except -1
    cdef object ask_for_memory(self, object data)
    cdef int send_after_loss(self) except -1
    cdef int send_or_report(self, object data, object address) except -1
    cdef int enqueue(self, object data, object address) except -1
    cdef int sent_all(self) except -1


cdef DatagramTransport open_datagram(
    LoopCore loop, object sock, object protocol, object address, object waiter, object extra
)
