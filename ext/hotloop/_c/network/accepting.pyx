"""Accepting connections: from the listening socket to the transport without a Python socket, and without a task unless
there is a TLS handshake.

asyncio accepts until no connection is left, in one callback at most one more than the backlog (the backlog itself in
older versions). For each it creates a task that makes protocol and transport, in the next turn, and waits for
connection_made() or the end of the TLS handshake. Here an AcceptedConnection is queued in place of a task that would
only wait for connection_made(); its result is used in debug mode only, where asyncio's own code runs. That also runs on
a loop with a replacement for one of the methods that asyncio calls for this.

Source: asyncio/selector_events.py, _accept_connection() and _accept_connection2(); accept(2).
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.scheduler.handles cimport copy_context, copy_current_context, run_reporting
from hotloop._c.scheduler.ready_queue cimport Runnable, push
from hotloop._c.system.address cimport address_is_native, sockaddr_storage, socklen_t
from hotloop._c.system.os_errors cimport os_error
from hotloop._c.tls.protocol cimport TlsProtocol, new_tls
from hotloop._c.tls.transport cimport new_tls_transport
from hotloop._c.transports.stream cimport open_accepted

import socket
from _socket import socket as socket_base
from asyncio import constants, trsock

from hotloop._asyncio.accepted_handshake import complete_handshake

cdef extern from "system/socket_calls.h":
    int socket_accept(int fd, sockaddr_storage *, socklen_t *)
    int socket_close(int fd)
    int socket_no_delay(int fd)

cdef int IPPROTO_TCP = socket.IPPROTO_TCP
# The base class's: that of socket.socket looks the number up in an enumeration each time.
cdef object family_member = socket_base.family


cdef bint can_accept(object sock) except -1:
    """Whether accept_connections() can convert the addresses of this listening socket's peers."""
    return address_is_native(family_member.__get__(sock))


# Indices of the arguments of loop._start_serving().
cdef enum:
    PROTOCOL_FACTORY
    SOCKET
    SSL_CONTEXT
    SERVER
    BACKLOG
    HANDSHAKE_TIMEOUT
    SHUTDOWN_TIMEOUT


cdef int accept_connections(
    LoopCore loop, object sock, int backlog, object context, tuple arguments
) except -1:
    """Accept waiting connections, at most `backlog` + 1; `arguments` are those of loop._start_serving()."""
    cdef sockaddr_storage peer
    cdef socklen_t length = 0
    cdef int fd
    cdef bint no_delay = sock.proto == IPPROTO_TCP
    cdef AcceptedConnection connection
    for _ in range(backlog + 1):
        # Before accept(): if there is no memory for it, the connection goes on waiting in the kernel.
        connection = AcceptedConnection.__new__(AcceptedConnection)
        # Each time, because the program may have closed the socket: a finalizer that an allocation here has run, or a
        # task that starts at once.
        fd = socket_accept(sock.fileno(), &peer, &length)
        if fd == -ECONNABORTED:
            # The peer closed it before it was accepted.
            continue
        if fd == -EAGAIN or fd == -EINTR:
            break
        if fd < 0:
            handle_accept_error(loop, sock, os_error(fd), arguments)
            break
        connection.fd = fd
        # Only TCP sockets have TCP_NODELAY; an accepted socket has its listener's protocol.
        connection.tcp = no_delay and socket_no_delay(fd) == 0
        connection.loop = loop
        connection.arguments = arguments
        connection.peer = PyBytes_FromStringAndSize(<const char *>&peer, length)
        connection.context = copy_current_context() if context is None else copy_context(context)
        if arguments[SSL_CONTEXT] is None:
            push(loop.ready, connection)
        else:
            loop.create_task(complete_handshake(connection))
    return 0


@cython.final
@cython.no_gc_clear
cdef class AcceptedConnection(Runnable):
    """A connection that waits for the next turn, or for its task's first step. Owns its descriptor until then."""
    cdef LoopCore loop
    cdef int fd
    cdef bint tcp                   # it is a TCP socket
    cdef bytes peer                 # the peer's address
    cdef tuple arguments            # of loop._start_serving()
    cdef object context

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            socket_close(self.fd)

    cdef object open(self):
        """Make the protocol and its transport, in the connection's context. Returns the protocol."""
        cdef object protocol, context = self.context
        cdef int fd
        PyContext_Enter(context)
        try:
            protocol = make_protocol(self.loop, self.arguments, context)
            fd = self.fd
            self.fd = -1
            open_accepted(self.loop, fd, self.peer, self.tcp, protocol, context, self.arguments[SERVER])
        finally:
            PyContext_Exit(context)
        return protocol

    cdef int run(self) except -1:
        """A factory that raises ends the connection; asyncio reports that in debug mode only."""
        try:
            self.open()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            pass
        return 0

    def _open_tls(self):
        """Make protocol and transport. Returns (transport, waiter), for complete_handshake()."""
        cdef TlsProtocol tls = self.open()
        return tls.app_transport, tls.waiter

    def _run(self):
        run_reporting(self, self.loop)

    @property
    def _callback(self):
        """What a report of slow callbacks names: the protocol factory."""
        return self.arguments[PROTOCOL_FACTORY]


cdef object make_protocol(LoopCore loop, tuple arguments, object context):
    """The transport's protocol: the application's, or a TlsProtocol with the application's behind it."""
    cdef object protocol = arguments[PROTOCOL_FACTORY]()
    cdef TlsProtocol tls
    if arguments[SSL_CONTEXT] is None:
        return protocol
    timeouts = {
        "ssl_handshake_timeout": arguments[HANDSHAKE_TIMEOUT],
        "ssl_shutdown_timeout": arguments[SHUTDOWN_TIMEOUT],
    }
    waiter = loop.create_future()
    tls = new_tls(loop, protocol, arguments[SSL_CONTEXT], waiter, True, None, False, context, timeouts)
    new_tls_transport(tls)
    return tls


cdef int handle_accept_error(LoopCore loop, object sock, object error, tuple arguments) except -1:
    """accept() has failed. If a resource is used up, stop accepting for a while, because the listening socket stays
    ready; existing connections are served meanwhile. Other errors are raised."""
    if error.errno not in (EMFILE, ENFILE, ENOBUFS, ENOMEM):
        raise error
    # The retry first: the other steps may fail, and the exception handler may close the server.
    loop.call_later(constants.ACCEPT_RETRY_DELAY, resume_accepting, loop, sock, arguments)
    loop._remove_reader(sock.fileno())
    loop.call_exception_handler(
        {
            "message": "socket.accept() out of system resource",
            "exception": error,
            "socket": trsock.TransportSocket(sock),
        }
    )
    return 0


def resume_accepting(loop, sock, arguments):
    # The server may be closed by now.
    if sock.fileno() >= 0:
        loop._start_serving(*arguments)
