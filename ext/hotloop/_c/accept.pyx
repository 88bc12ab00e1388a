"""Accepting connections: from the listening socket to the transport without a Python socket and without a task each.

asyncio accepts until there is nothing left, at most a backlog's worth in a turn, and runs a task for each connection
that makes protocol and transport and waits for connection_made(). Without TLS there is nothing to wait for.

Source: asyncio/selector_events.py, _accept_connection() and _accept_connection2(); accept(2).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.contextvars cimport PyContext_Copy, PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM

from hotloop._c.address cimport sockaddr_storage, socklen_t
from hotloop._c.core cimport LoopCore
from hotloop._c.stream cimport open_stream

cdef extern from "quiet.h":
    pass

import os
import socket
from asyncio import constants, trsock

cdef extern from "socket_calls.h":
    int socket_accept(int fd, sockaddr_storage *, socklen_t *)
    void socket_no_delay(int fd)

cdef int IPPROTO_TCP = socket.IPPROTO_TCP


cdef int accept_connections(
    LoopCore loop, object sock, object protocol_factory, object server, int backlog, object context, tuple arguments
) except -1:
    """Accept what is waiting, at most `backlog` + 1 connections; `arguments` are those of loop._start_serving()."""
    cdef sockaddr_storage peer
    cdef socklen_t length = 0
    cdef int listener = sock.fileno(), fd
    cdef bint no_delay = sock.proto == IPPROTO_TCP
    for _ in range(backlog + 1):
        fd = socket_accept(listener, &peer, &length)
        if fd == -ECONNABORTED:
            # Gone before its turn came.
            continue
        if fd == -EAGAIN or fd == -EINTR:
            break
        if fd < 0:
            refused(loop, sock, OSError(-fd, os.strerror(-fd)), arguments)
            break
        if no_delay:
            socket_no_delay(fd)
        address = PyBytes_FromStringAndSize(<const char *>&peer, length)
        make_connection(loop, fd, address, protocol_factory, server, context)
        # The protocol factory may have closed the server.
        if sock.fileno() != listener:
            break
    return 0


cdef int make_connection(
    LoopCore loop, int fd, bytes peer, object protocol_factory, object server, object context
) except -1:
    """Make the protocol and its transport, which owns the descriptor. Who cannot make a protocol has no connection;
    asyncio says so in debug mode only."""
    cdef object protocol
    context = PyContext_CopyCurrent() if context is None else PyContext_Copy(context)
    PyContext_Enter(context)
    try:
        try:
            protocol = protocol_factory()
        except BaseException:
            os.close(fd)
            raise
        open_stream(loop, None, fd, peer, protocol, context, None, None, server)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        pass
    finally:
        PyContext_Exit(context)
    return 0


cdef int refused(LoopCore loop, object sock, object error, tuple arguments) except -1:
    """accept() has failed. Where something is used up, go on serving those who are there, and try again later: the
    listening socket would be reported ready all the time."""
    if error.errno not in (EMFILE, ENFILE, ENOBUFS, ENOMEM):
        raise error
    loop.call_exception_handler(
        {
            "message": "socket.accept() out of system resource",
            "exception": error,
            "socket": trsock.TransportSocket(sock),
        }
    )
    loop._remove_reader(sock.fileno())
    loop.call_later(constants.ACCEPT_RETRY_DELAY, accept_again, loop, sock, arguments)
    return 0


def accept_again(loop, sock, arguments):
    # The server may have been closed meanwhile.
    if sock.fileno() >= 0:
        loop._start_serving(*arguments)
