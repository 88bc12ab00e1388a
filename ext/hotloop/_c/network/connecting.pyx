"""sock_connect(), and connections to address literals.

asyncio asks its resolver for each address, and the resolver leaves literals as they are. For an IPv4 literal nothing
has to be asked, unless a program has replaced a function that asyncio would call for that.

Source: asyncio/base_events.py, _ensure_resolved() and _ipaddr_info(); asyncio/selector_events.py; connect(2).
"""

from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, EALREADY, EINPROGRESS, EINTR

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.loop.state cimport backoff_reset
from hotloop._c.network.socket_methods cimport call_method, can_call_kernel
from hotloop._c.network.socket_operation cimport SocketOperation, new_operation
from hotloop._c.poller.watcher cimport POLLER_WRITE
from hotloop._c.runtime.bound_methods cimport is_method
from hotloop._c.runtime.python_api cimport PyLong_CheckExact, PySys_Audit
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.system.address cimport address_from_python, sockaddr_storage, socklen_t
from hotloop._c.system.os_errors cimport os_error
from hotloop._c.system.socket_class cimport socket_object_protocol, socket_object_type

import _socket
import socket
from asyncio import base_events

cdef extern from "system/socket_object.h":
    bint socket_object_find_functions(object type)
    int socket_object_fileno(object) except? -1
    int socket_object_family(object) except? -1
    bint socket_object_is_non_blocking(object) except -1

cdef extern from "system/socket_calls.h":
    int AF_INET
    int socket_connect(int fd, const sockaddr_storage *, socklen_t)
    int socket_take_error(int fd, int *error)

cdef object socket_class = socket.socket
socket_object_find_functions(_socket.socket)
cdef int SOCK_STREAM = socket.SOCK_STREAM
cdef int SOCK_DGRAM = socket.SOCK_DGRAM
cdef int IPPROTO_TCP = socket.IPPROTO_TCP
cdef int IPPROTO_UDP = socket.IPPROTO_UDP
# What asyncio calls to see that an address is a literal, as it was when this module was imported.
cdef object ensure_resolved = base_events.BaseEventLoop._ensure_resolved
cdef object ipaddr_info = base_events._ipaddr_info
cdef object inet_pton = socket.inet_pton


# -- address literals --------------------------------------------------------------------------------------------------

cdef bint is_literal(object loop, object host, object port) except -1:
    """Whether asyncio's _ensure_resolved() would take `host` for an IPv4 address, and leave it and the port as they
    are."""
    cdef sockaddr_storage storage
    cdef socklen_t length
    # Python's connect() takes hosts that are no literals, too: "" and "<broadcast>".
    if type(host) is not str or not PyLong_CheckExact(port) or not u"0" <= (<str>host)[:1] <= u"9":
        return False
    return (
        address_from_python((host, port), AF_INET, &storage, &length)
        and is_method(loop._ensure_resolved, loop, ensure_resolved)
        and base_events._ipaddr_info is ipaddr_info
        and base_events.socket is socket
        and socket.inet_pton is inet_pton
    )


cdef bint is_resolved(object loop, object sock, object address) except -1:
    """Whether asyncio would pass this address to the socket's connect() as it is."""
    cdef int protocol, kind
    if type(sock) is not socket_class or type(address) is not tuple or len(<tuple>address) != 2:
        return False
    if socket_object_family(sock) != AF_INET:
        return False
    kind = socket_object_type(sock)
    protocol = socket_object_protocol(sock)
    return (
        (kind == SOCK_STREAM or kind == SOCK_DGRAM)
        and (protocol == 0 or protocol == IPPROTO_TCP or protocol == IPPROTO_UDP)
        and is_literal(loop, (<tuple>address)[0], (<tuple>address)[1])
    )


# -- sock_connect() ----------------------------------------------------------------------------------------------------

cdef object connect(LoopCore loop, object sock, object address):
    """loop.sock_connect(): a coroutine."""
    if loop.debug or not is_resolved(loop, sock, address):
        return sock_connect(loop, sock, address)
    return new_operation(loop, "sock_connect", try_connect, POLLER_WRITE, sock, address, None)


async def sock_connect(loop, sock, address):
    """loop.sock_connect() with asyncio's checks, for any address."""
    base_events._check_ssl_socket(sock)
    if loop._debug and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
    if not is_resolved(loop, sock, address) and (
        sock.family == socket.AF_INET or (base_events._HAS_IPv6 and sock.family == socket.AF_INET6)
    ):
        infos = await loop._ensure_resolved(address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop)
        address = infos[0][4]
    await new_operation(loop, "sock_connect", try_connect, POLLER_WRITE, sock, address, None)


cdef PyObject *try_connect(SocketOperation self) except? NULL:
    """`progress`: whether connect() was called."""
    if self.progress:
        return finish_connecting(self)
    self.progress = 1
    # The listening socket may be served by this loop, too.
    backoff_reset(&self.loop.metrics.backoff)
    return begin_connecting(self)


cdef PyObject *begin_connecting(SocketOperation self) except? NULL:
    cdef PyObject *answer
    cdef sockaddr_storage target
    cdef socklen_t length = 0
    cdef int status
    if (
        not can_call_kernel(self)
        or not socket_object_is_non_blocking(self.sock)
        or not address_from_python(self.argument, socket_object_family(self.sock), &target, &length)
    ):
        answer = call_method(self, "connect", (self.argument,))
        # The operation may wait by itself all the same.
        can_call_kernel(self)
        return answer
    PySys_Audit("socket.connect", "OO", <PyObject *>self.sock, <PyObject *>self.argument)
    # A hook may have closed the socket.
    self.fd = socket_object_fileno(self.sock)
    status = socket_connect(self.fd, &target, length)
    if status == 0:
        return Py_NewRef(None)
    # These become BlockingIOError and InterruptedError, after which asyncio waits.
    if status in (-EINPROGRESS, -EAGAIN, -EALREADY, -EINTR):
        return NULL
    raise os_error(status)


cdef PyObject *finish_connecting(SocketOperation self) except? NULL:
    cdef PyObject *answer
    cdef int number = 0, status
    if can_call_kernel(self):
        status = socket_take_error(self.fd, &number)
        if status < 0:
            raise os_error(status)
    else:
        answer = call_method(self, "getsockopt", (socket.SOL_SOCKET, socket.SO_ERROR))
        # As in asyncio, which waits again if the method says so.
        if answer == NULL:
            can_call_kernel(self)
            return NULL
        number = steal(answer)
    if number != 0:
        raise OSError(number, f"Connect call failed {self.argument}")
    return Py_NewRef(None)
