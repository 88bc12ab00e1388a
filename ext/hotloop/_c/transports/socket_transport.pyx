"""SocketTransport: the base class of stream and datagram transports. It owns the socket and answers questions about it.

A transport that was not given a Python socket object makes one when the program asks for it. A transport keeps its
socket's addresses, so the program can ask for them after the socket is closed.

A socket is `exposed` if the program passed it to the loop, or has taken it or its number from the transport. The
program may have closed it without calling the transport. So before each system call the transport asks the socket
object whether it still has the number, which may by now belong to another file. As long as the program can use the
socket without calling the transport, writes do not wait for the end of the turn: for good once it has taken the number
or a duplicate, and else as long as anything but the transport refers to the socket object.

Source: asyncio/selector_events.py; asyncio/trsock.py.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.errno cimport EBADF

from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_EDGE, POLLER_MORE, POLLER_READ, POLLER_WRITE
from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.system.address cimport address_is_native, address_to_python, sockaddr, sockaddr_storage, socklen_t
from hotloop._c.system.os_errors cimport os_error
from hotloop._c.system.socket_class cimport socket_object_protocol, socket_object_type, socket_class_is_patched
from hotloop._c.transports.base cimport Transport

import socket
import weakref
from _socket import socket as socket_base
from asyncio import base_events, selector_events, trsock

from hotloop._asyncio.unclosed import unclosed_warning

cdef extern from "system/socket_object.h":
    bint socket_object_find_functions(object type)
    int socket_object_family(object sock) except? -1
    bint socket_object_has_descriptor(object sock, int fd) noexcept
    bint socket_object_is_shared(PyObject *sock, Py_ssize_t owners) noexcept

cdef extern from "system/socket_calls.h":
    int AF_INET
    int AF_INET6
    int AF_UNSPEC
    int socket_close(int fd)
    int socket_is_tcp(int fd, int family)
    int socket_no_delay(int fd)
    int socket_name(int fd, sockaddr_storage *, socklen_t *)
    int socket_peer(int fd, sockaddr_storage *, socklen_t *)

cdef extern from *:
    """
    /* Whether anything but the caller has a reference to the transport, and so may ask it something later. Not valid in
     * a call from Python code, whose reference since 3.14 may not be counted. Without the GIL it cannot be known. */
    #ifdef Py_GIL_DISABLED
    #define is_shared(transport) ((void)(transport), 1)
    #else
    #define is_shared(transport) (Py_REFCNT(transport) > 1)
    #endif
    """
    bint is_shared(object transport) noexcept

socket_object_find_functions(socket_base)
# A program may put another class, or a mock, in its place, whose objects have no descriptor where usable_fd() looks.
cdef object socket_class = socket.socket
cdef int SOCK_STREAM = socket.SOCK_STREAM
cdef int IPPROTO_TCP = socket.IPPROTO_TCP
cdef object warn_unclosed_socket = unclosed_warning(selector_events._SelectorTransport)
# asyncio's own function, as it was when this module was imported.
cdef object asyncio_set_no_delay = base_events._set_nodelay


cdef class SocketTransport(Transport):
    """A transport that owns a socket."""

    cdef int warn_unclosed(self) except -1:
        warn_unclosed_socket(self)
        return 0

    cdef int adopt_socket(self, object sock, object extra, bint exposed) except -1:
        """Take over a Python socket object. `extra`: answers for get_extra_info(), or None."""
        self.sock = sock
        self.fd = sock.fileno()
        self.extra = dict(extra) if extra else {}
        if "peername" not in self.extra:
            self.extra["peername"] = peer_address(self.fd, sock)
        if exposed:
            self.expose()
        return 0

    cdef int expose(self) except -1:
        """Note that the program has the socket object, and may close it."""
        if self.exposed or self.fd < 0:
            return 0
        self.flush_early()
        # Later the program may have closed the socket.
        if self.extra is None or "sockname" not in self.extra:
            self.find_extra("sockname", None)
        self.exposed = True
        # Only the loop's thread may use its poller.
        if self.loop is not None and not (self.attached or self.closing or self.loop.runs_elsewhere()):
            self.reserve(self.loop)
        return 0

    cdef bint set_no_delay(self) except -1:
        """What asyncio's _set_nodelay() does: turn TCP_NODELAY on, if the socket object says that it is one of TCP.
        True if it says so, and the kernel has taken the option."""
        cdef int family
        if base_events._set_nodelay is asyncio_set_no_delay and not socket_class_is_patched():
            family = socket_object_family(self.sock)
            if family != AF_INET and family != AF_INET6:
                return False
            if socket_object_type(self.sock) != SOCK_STREAM or socket_object_protocol(self.sock) != IPPROTO_TCP:
                return False
            if socket_no_delay(self.fd) == 0:
                return True
        # It also raises the error, if the kernel has refused.
        base_events._set_nodelay(self.sock)
        return False

    cdef bint is_tcp(self) except -1:
        """Whether the kernel says that it is a TCP socket."""
        cdef bint asks_object = self.sock is not None and not socket_class_is_patched()
        return socket_is_tcp(self.fd, socket_object_family(self.sock) if asks_object else AF_UNSPEC)

    cdef int give_away(self) except -1:
        """Note that from here on the program may use the descriptor at any time, whether or not it keeps the socket
        object."""
        if self.given_away or self.fd < 0:
            return 0
        self.expose()
        self.flush_early()
        self.given_away = True
        return 0

    cdef bint is_used_by_program(self) noexcept:
        """Whether the program can use the socket without calling this transport."""
        cdef Py_ssize_t own_references = 1 if self.wrapper is None else 2
        return self.exposed and (self.given_away or socket_object_is_shared(<PyObject *>self.sock, own_references))

    cdef int usable_fd(self) noexcept:
        """The number for a system call. If it may belong to another file by now, -1, for which the kernel returns
        EBADF."""
        return -1 if self.exposed and self.fd >= 0 and not socket_object_has_descriptor(self.sock, self.fd) else self.fd

    cdef int check_socket(self) except -1:
        """Raise what the poller raises for a closed descriptor. The poller may not be asked, because the registration
        stays while reading is paused."""
        if self.usable_fd() < 0:
            raise os_error(-EBADF)
        return 0

    # -- registration with the poller ----------------------------------------------------------------------------------

    cdef bint update_interest(self) except -1:
        """Ask the poller for the events that are wanted now. An edge-triggered registration may keep more events: that
        costs nothing. True if the kernel was told, and so reports the socket's state again."""
        cdef int events = 0
        if self.fd < 0 or self.loop.poller is None:
            return False
        if self.reading or self.edge_triggered:
            events |= POLLER_READ
        if self.blocked:
            events |= POLLER_WRITE
        if self.edge_triggered:
            events |= POLLER_EDGE
            if self.is_attached():
                events |= self.loop.poller.registrations[self.fd].events
        if not self.is_attached():
            if events:
                self.attach(events)
            return events != 0
        if self.reading or self.blocked:
            return self.loop.poller.resume(self.fd, self, events)
        self.loop.poller.suspend(self.fd)
        return False

    cdef int wait_until_writable(self) except -1:
        """Ask the poller to report when the kernel takes more."""
        cdef int error
        self.blocked = True
        try:
            if not self.update_interest() and self.exposed and self.is_attached():
                # Even if the kernel's set has the event since an earlier wait: the program may have put another file
                # under the number.
                error = self.loop.poller.rearm(self.fd)
                if error < 0:
                    raise os_error(error)
        except BaseException:
            self.blocked = False
            raise
        return 0

    cdef int begin_reading(self) except -1:
        self.check_socket()
        self.reading = True
        self.events &= ~(POLLER_READ | POLLER_MORE)
        if not self.update_interest():
            # What came while reading was paused was reported then.
            self.rearm(POLLER_READ | POLLER_MORE)
        return 0

    cdef int end_reading(self) except -1:
        self.reading = False
        if self.is_attached():
            self.update_interest()
        return 0

    cdef bint is_attached(self) noexcept:
        """Whether the poller's registration for the number is this transport's, not that of a later file."""
        return (
            self.attached
            and self.loop is not None
            and self.loop.poller is not None
            and self.loop.poller.is_registered(self.fd)
            and self.loop.poller.registrations[self.fd].generation == self.generation
        )

    cdef int reserve(self, LoopCore loop) except -1:
        """Have the loop refuse what else would wait for a socket that the program can use, before reading begins."""
        # Kept, here and below: dropping what had the number before may run a finalizer, which replaces the selector.
        cdef PollerSelector poller = loop.poller
        if self.fd >= 0 and poller is not None:
            poller.reserve(self.fd)
            self.generation = poller.registrations[self.fd].generation
            self.attached = True
        return 0

    cdef int attach(self, int events) except -1:
        cdef int fd = self.usable_fd()
        cdef PollerSelector poller = self.loop.poller
        poller.attach(fd, self, events)
        self.generation = poller.registrations[fd].generation
        self.attached = True
        return 0

    cdef int stop_watching(self) except -1:
        """Remove the descriptor from the poller. Idempotent."""
        cdef bint own = self.is_attached()
        cdef PollerSelector poller
        self.attached = False
        if own:
            poller = self.loop.poller
            poller.detach(self.fd)
        return 0

    cdef int release_resources(self) except -1:
        self.count_as(0)
        if self.fd < 0:
            return 0
        try:
            if is_shared(self) and (self.extra is None or "sockname" not in self.extra):
                self._extra["sockname"] = own_address(self.fd, self.sock)
            self.stop_watching()
        finally:
            self.close_descriptor()
        return 0

    cdef int close_dropped(self) except -1:
        # The garbage collector closes a Python socket of the same cycle in this thread. If the loop's thread closed it
        # as well, the number could belong to another file by then.
        return 0 if self.attached else self.close_descriptor()

    cdef int close_descriptor(self) except -1:
        cdef int fd, error
        cdef object sock
        cdef object_section section
        section_enter(&section, self)
        try:
            # Another thread may be asking for the Python socket.
            fd = self.fd
            sock = self.sock
            self.closed_fd = fd
            self.fd = -1
        finally:
            section_leave(&section)
        if sock is not None:
            sock.close()
            return 0
        error = socket_close(fd)
        if error < 0:
            raise os_error(error)
        return 0

    cdef object find_extra(self, str name, object default):
        cdef object found
        if name == "peername":
            found = None if self.peer is None else address_of(self.peer)
        elif name == "sockname":
            found = own_address(self.fd, self.sock)
        elif name == "socket":
            found = self.socket_object()
            if self.fd < 0:
                found = trsock.TransportSocket(found)
            else:
                found = self.wrapper = FlushingSocket(self, found)
        else:
            return default
        self._extra[name] = found
        return found

    cdef object socket_object(self):
        """The Python socket; a closed one if the transport is closed."""
        if self.sock is None and self.fd >= 0:
            sock = socket_class(fileno=self.fd)
            sock.settimeout(0)
            self.sock = sock
        elif self.sock is None:
            # The descriptor was closed before there was a Python socket, or was never opened.
            sock = socket_class() if self.peer is None else socket_class(family_of(self.peer))
            sock.close()
            self.sock = sock
        return self.sock

    @property
    def _sock(self):
        if self.fd < 0:
            return None
        # First, because usable_fd() asks the object of a socket that was given away.
        self.socket_object()
        self.give_away()
        return self.sock

    @property
    def _sock_fd(self):
        if self.fd >= 0:
            # usable_fd() asks the object whether the number is still its own.
            self.socket_object()
        self.give_away()
        return self.fd if self.fd >= 0 else self.closed_fd

    def __repr__(self):
        cdef object loop = self._loop
        info = [type(self).__name__]
        if self.fd < 0:
            info.append("closed")
        elif self.closing:
            info.append("closing")
        info.append(f"fd={self.fd if self.fd >= 0 else self.closed_fd}")
        if loop is not None and not loop.is_closed():
            info.append(f"read={'polling' if self.reading and self.attached else 'idle'}")
            info.append(f"write=<{'polling' if self.blocked else 'idle'}, bufsize={self.unsent_bytes()}>")
        return f"<{' '.join(info)}>"


class FlushingSocket(trsock.TransportSocket):
    """The answer of get_extra_info("socket"). Its methods first send what was written earlier. Taking its number or a
    duplicate gives the socket away, and so does shutdown(), after which a write may fail that the kernel would take."""

    __slots__ = ("_plain", "_transport")

    def __init__(self, SocketTransport transport not None, sock):
        self._plain = sock
        # A strong reference would be a cycle, so that only the garbage collector would free the transport.
        self._transport = weakref.ref(transport)

    @property
    def _sock(self):
        # Read by fileno(), dup() and all methods that are not overridden here.
        transport = self._transport()
        if transport is not None:
            (<SocketTransport?>transport).give_away()
        return self._plain

    @property
    def family(self):
        return self._plain.family

    @property
    def type(self):
        return self._plain.type

    @property
    def proto(self):
        return self._plain.proto

    def getpeername(self):
        return self._plain.getpeername()

    def getsockname(self):
        return self._plain.getsockname()

    def getsockopt(self, *args, **kwargs):
        return flush(self).getsockopt(*args, **kwargs)

    def setsockopt(self, *args, **kwargs):
        flush(self).setsockopt(*args, **kwargs)

    def __repr__(self):
        return repr(trsock.TransportSocket(self._plain))


cdef object flush(object wrapper):
    """Send what was written earlier, and return the Python socket."""
    cdef object transport = wrapper._transport()
    if transport is not None:
        (<SocketTransport?>transport).flush_early()
    return wrapper._plain


cdef object peer_address(int fd, object sock):
    """What the socket's getpeername() returns; None if it raises OSError, as on a socket without a peer."""
    cdef sockaddr_storage storage
    cdef socklen_t length = 0
    if not socket_class_is_patched():
        if socket_peer(fd, &storage, &length) < 0:
            return None
        if address_is_native(storage.ss_family):
            return address_to_python(<sockaddr *>&storage, length)
    try:
        return sock.getpeername()
    except OSError:
        return None


cdef object own_address(int fd, object sock):
    """The socket's own address; None if the kernel does not say."""
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
