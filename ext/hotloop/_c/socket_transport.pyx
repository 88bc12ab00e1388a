"""SocketTransport: what stream and datagram transports share, which is what they say about their socket.

Python's socket object is made when somebody asks for it, unless the transport was given one. The addresses are what
they were: they can be asked for after the socket is closed, as long as somebody holds the transport.

Source: asyncio/selector_events.py; asyncio/trsock.py.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from hotloop._c.address cimport address_is_native, address_to_python, sockaddr, sockaddr_storage, socklen_t
from hotloop._c.transport cimport Transport, os_error

cdef extern from "quiet.h":
    pass

import socket
from asyncio import trsock

cdef extern from "socket_calls.h":
    int socket_close(int fd)
    int socket_name(int fd, sockaddr_storage *, socklen_t *)

cdef extern from *:
    """
    /* Whether anybody has a transport but who runs it, and so may ask it something later: outside calls by Python code,
     * which since 3.14 need not count. Without the GIL nobody can tell. */
    #ifdef Py_GIL_DISABLED
    #define is_shared(transport) ((void)(transport), 1)
    #else
    #define is_shared(transport) (Py_REFCNT(transport) > 1)
    #endif
    """
    bint is_shared(object transport) noexcept


cdef class SocketTransport(Transport):
    """A transport on a socket, which it owns."""

    cdef int adopt(self, object sock, object extra) except -1:
        """Take over Python's socket object, and what is known of it already, which may be None."""
        self.sock = sock
        self.fd = sock.fileno()
        self.extra = dict(extra) if extra else {}
        if "peername" not in self.extra:
            self.extra["peername"] = peer_of(sock)
        return 0

    cdef int release(self) except -1:
        self.count_as(0)
        if self.fd < 0:
            return 0
        if is_shared(self) and (self.extra is None or "sockname" not in self.extra):
            self._extra["sockname"] = name_of(self.fd, self.sock)
        self.stop_watching()
        return self.close_descriptor()

    cdef int close_dropped(self) except -1:
        # The collector closes a Python socket that is in the same cycle, in this thread too. If the loop's closed it at
        # the same time, that could be another file's descriptor by then.
        return 0 if self.attached else self.close_descriptor()

    cdef int close_descriptor(self) except -1:
        cdef int fd = self.fd, error
        self.closed_fd = fd
        self.fd = -1
        if self.sock is not None:
            self.sock.close()
            return 0
        error = socket_close(fd)
        if error < 0:
            raise os_error(error)
        return 0

    cdef object find_extra(self, str name):
        cdef object found
        if name == "peername":
            found = None if self.peer is None else address_of(self.peer)
        elif name == "sockname":
            found = name_of(self.fd, self.sock)
        elif name == "socket":
            found = trsock.TransportSocket(self.socket_object())
        else:
            raise KeyError(name)
        self._extra[name] = found
        return found

    cdef object socket_object(self):
        """Python's socket; a closed one if the transport is."""
        if self.sock is None and self.fd >= 0:
            self.sock = socket.socket(fileno=self.fd)
            self.sock.settimeout(0)
        elif self.sock is None:
            # Nobody has asked for it in time, or it never had one.
            self.sock = socket.socket() if self.peer is None else socket.socket(family_of(self.peer))
            self.sock.close()
        return self.sock

    @property
    def _sock(self):
        return self.socket_object() if self.fd >= 0 else None

    @property
    def _sock_fd(self):
        return self.fd if self.fd >= 0 else self.closed_fd

    def __repr__(self):
        info = [type(self).__name__]
        if self.fd < 0:
            info.append("closed")
        elif self.closing:
            info.append("closing")
        info.append(f"fd={self._sock_fd}")
        if self.loop is not None and not self.loop.is_closed():
            info.append(f"read={'polling' if self.reading and self.attached else 'idle'}")
            info.append(f"write=<{'polling' if self.blocked else 'idle'}, bufsize={self.buffered()}>")
        return f"<{' '.join(info)}>"


cdef object peer_of(object sock):
    try:
        return sock.getpeername()
    except OSError:
        return None


cdef object name_of(int fd, object sock):
    """The socket's own address; None if it cannot be told."""
    cdef sockaddr_storage storage
    cdef socklen_t length = 0
    if socket_name(fd, &storage, &length) < 0:
        return None
    if address_is_native(storage.ss_family):
        return address_to_python(<sockaddr *>&storage, length)
    try:
        return sock.getsockname()
    except OSError:
        return None


cdef int family_of(bytes raw) noexcept:
    return (<const sockaddr *>PyBytes_AS_STRING(raw)).sa_family


cdef object address_of(bytes raw):
    return address_to_python(<const sockaddr *>PyBytes_AS_STRING(raw), <socklen_t>PyBytes_GET_SIZE(raw))
