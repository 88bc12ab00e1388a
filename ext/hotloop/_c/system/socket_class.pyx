"""Whether the program has replaced methods of socket.socket: then a system call must not stand for a method. And what a
socket object says of itself.

Source: the documentation of `socket`.
"""

from hotloop._c.runtime.locking cimport load_acquire_version, store_release_version

import socket
from _socket import socket as base_of_socket

cdef extern from "system/socket_object.h":
    bint socket_object_find_functions(object type)

cdef extern from *:
    """
    static inline unsigned int version_tag_of(PyObject *type)
    {
        /* Without the GIL another thread may be writing it. */
        return __atomic_load_n(&((PyTypeObject *)type)->tp_version_tag, __ATOMIC_RELAXED);
    }
    """
    unsigned int version_tag_of(object type) noexcept

cdef object socket_class = socket.socket
cdef bint found_socket_functions = socket_object_find_functions(base_of_socket)
# What a program may put into socket.socket in another one's place. Its base, _socket.socket, cannot be changed, but
# a name that is set in socket.socket hides that of the base.
cdef dict REPLACEABLE = {
    name: getattr(socket_class, name)
    for name in (
        "__init__", "fileno", "family", "type", "proto", "gettimeout", "setblocking", "getsockname", "getpeername",
        "getsockopt", "setsockopt", "connect", "accept", "recv", "recv_into", "recvfrom", "recvfrom_into", "send",
        "sendmsg", "sendto", "shutdown", "close", "_real_close",
    )
}
# The version tag that socket.socket had when none of them was replaced; 0: unknown.
cdef unsigned int unpatched_version = 0


cdef bint socket_class_is_patched() except -1:
    """Whether the program has replaced methods of socket.socket, as tests do."""
    cdef unsigned int version = version_tag_of(socket_class)
    if version != 0 and version == load_acquire_version(&unpatched_version):
        return False
    if not found_socket_functions or any(
        getattr(socket_class, name) is not method for name, method in REPLACEABLE.items()
    ):
        return True
    # A class that has no version gets one when it is asked for a method; another thread's patch takes it away.
    if version == version_tag_of(socket_class):
        store_release_version(&unpatched_version, version)
    return False


# The base class's: that of socket.socket looks the number up in an enumeration each time.
cdef object get_type = base_of_socket.type.__get__
cdef object get_protocol = base_of_socket.proto.__get__


cdef object socket_object_type(object sock):
    return get_type(sock)


cdef object socket_object_protocol(object sock):
    return get_protocol(sock)
