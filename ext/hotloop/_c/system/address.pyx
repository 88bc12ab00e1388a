"""Socket addresses between C and Python, exactly as the socket module has them, and address literals resolved at once.

For the transports, from C: address_to_python() makes what recvfrom(), accept() and getpeername() return,
address_from_python() takes what sendto() takes, and an AddressCache makes a frequent peer's address object only once.
For the loop, from Python: getaddrinfo_literal().

All three leave uncertain cases to the socket module. Addresses of families other than AF_INET, AF_INET6 and AF_UNIX
have many shapes. For an invalid address, the text of the exception differs between the versions of Python. A transport
hands all these to the socket object itself, so the result is right by construction.

Source: the documentation of `socket`; getaddrinfo(3), ip(7), ipv6(7), unix(7).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from hotloop._c.runtime.python_api cimport PyLong_CheckExact, PySys_Audit

import socket
from asyncio import base_events

cdef extern from "Python.h":
    object PyUnicode_DecodeFSDefaultAndSize(const char *text, Py_ssize_t size)
    object PyUnicode_EncodeFSDefault(object text)
    object PyUnicode_FromKindAndData(int kind, const void *data, Py_ssize_t size)
    int PyUnicode_1BYTE_KIND
    bint PyUnicode_Check(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    const char *PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    bint PyLong_Check(object)
    long PyLong_AsLongAndOverflow(object, int *overflow)  # of an integer: raises nothing

cdef extern from "system/address.h":
    int AF_INET
    int AF_INET6
    int AF_UNIX
    enum: AI_NUMERICHOST
    enum: AI_NUMERICSERV
    enum: AI_PASSIVE
    enum: IPPROTO_TCP
    enum: IPPROTO_UDP
    enum: SOCK_DGRAM
    struct sockaddr_in:
        pass
    struct sockaddr_in6:
        pass
    enum: INET6_ADDRSTRLEN
    enum: ADDRESS_LARGEST_FLOWINFO
    bint address_family_is_native(int family)
    size_t address_write_host(const sockaddr *, char *text)
    int address_port(const sockaddr *)
    uint32_t address_flowinfo(const sockaddr *)
    uint32_t address_scope(const sockaddr *)
    bint address_path(const sockaddr *, socklen_t length, const char **path, size_t *size)
    int address_set_inet(sockaddr_storage *, const char *host, int port)
    int address_set_inet6(sockaddr_storage *, const char *host, int port, uint32_t flowinfo, uint32_t scope)
    socklen_t address_set_unix(sockaddr_storage *, const char *path, size_t size)
    int address_set_literal(sockaddr_storage *, const char *host, bint *zone)
    bint address_may_be_scoped(const sockaddr *)
    size_t address_key_size(const sockaddr *, socklen_t length, size_t largest)
    uint64_t address_hash(const unsigned char *key, size_t size)

# How many addresses an AddressCache keeps at most: a power of two. They take 60 KB with their objects.
cdef enum:
    SLOTS = 256


# -- from C to Python --------------------------------------------------------------------------------------------------

cdef bint address_is_native(int family) noexcept:
    """Whether this module converts addresses of this family. Only the socket object can convert those of others."""
    return address_family_is_native(family)


cdef object address_to_python(const sockaddr *address, socklen_t length):
    """The address that the kernel has filled in, as the socket module returns it; None if `length` is 0: there is none.

    NotImplemented for a family that is not native, see address_is_native()."""
    if length == 0:
        return None
    if address.sa_family == AF_INET:
        return (host_of(address), address_port(address))
    if address.sa_family == AF_INET6:
        return (host_of(address), address_port(address), address_flowinfo(address), address_scope(address))
    if address.sa_family == AF_UNIX:
        return path_of(address, length)
    return NotImplemented


cdef object host_of(const sockaddr *address):
    cdef char[INET6_ADDRSTRLEN] text
    cdef size_t size = address_write_host(address, text)
    return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text, size)


cdef object path_of(const sockaddr *address, socklen_t length):
    cdef const char *path
    cdef size_t size
    if address_path(address, length, &path, &size):
        return PyBytes_FromStringAndSize(path, size)
    return PyUnicode_DecodeFSDefaultAndSize(path, size)


@cython.final
cdef class AddressCache:
    """The objects of recently seen addresses. One cache may serve any number of sockets, all in one thread.

    It is direct-mapped: an address replaces the one in its slot. It keeps only strings, integers and tuples of them.
    These cannot refer back to the cache, so the garbage collector need not know it."""

    def __dealloc__(self):
        if self.slots != NULL:
            for index in range(SLOTS):
                Py_XDECREF(self.slots[index].object)
            PyMem_Free(self.slots)

    cdef object lookup(self, const sockaddr *address, socklen_t length):
        """address_to_python(), from the cache if the address is there."""
        cdef size_t size = 0
        cdef address_slot *slot
        cdef PyObject *old
        if length != 0:
            size = address_key_size(address, length, LARGEST_KEY)
        if size == 0:
            return address_to_python(address, length)
        if self.slots == NULL:
            self.slots = <address_slot *>PyMem_Calloc(SLOTS, sizeof(address_slot))
            if self.slots == NULL:
                raise MemoryError
        slot = &self.slots[address_hash(<const unsigned char *>address, size) & (SLOTS - 1)]
        if slot.object != NULL and slot.size == size and memcmp(slot.key, address, size) == 0:
            return <object>slot.object
        found = address_to_python(address, length)
        old = slot.object
        memcpy(slot.key, address, size)
        slot.size = <unsigned char>size
        Py_INCREF(found)
        slot.object = <PyObject *>found
        Py_XDECREF(old)
        return found


# -- from Python to C --------------------------------------------------------------------------------------------------

cdef int address_from_python(object address, int family, sockaddr_storage *storage, socklen_t *length) except -1:
    """Fill in `storage` as the socket module would for `address` and a socket of this family; return 1.

    Return 0 if the socket object has to convert it: for a host to be resolved, another family or unusual types, and for
    anything invalid, because the socket object raises the right exception."""
    if family == AF_UNIX:
        return path_from_python(address, storage, length)
    if not PyTuple_Check(address):
        return 0
    if family == AF_INET:
        return inet_from_python(address, storage, length)
    if family == AF_INET6:
        return inet6_from_python(address, storage, length)
    return 0


cdef int inet_from_python(object address, sockaddr_storage *storage, socklen_t *length) except -1:
    cdef long port
    if PyTuple_GET_SIZE(address) != 2:
        return 0
    cdef const char *host = text_of(<object>PyTuple_GET_ITEM(address, 0))
    if host == NULL or not number_of(<object>PyTuple_GET_ITEM(address, 1), 0xffff, &port):
        return 0
    length[0] = sizeof(sockaddr_in)
    return address_set_inet(storage, host, <int>port)


cdef int inet6_from_python(object address, sockaddr_storage *storage, socklen_t *length) except -1:
    cdef Py_ssize_t size = PyTuple_GET_SIZE(address)
    cdef long port, flowinfo = 0, scope = 0
    if not 2 <= size <= 4:
        return 0
    cdef const char *host = text_of(<object>PyTuple_GET_ITEM(address, 0))
    if host == NULL or not number_of(<object>PyTuple_GET_ITEM(address, 1), 0xffff, &port):
        return 0
    if size > 2 and not number_of(<object>PyTuple_GET_ITEM(address, 2), ADDRESS_LARGEST_FLOWINFO, &flowinfo):
        return 0
    if size > 3 and not number_of(<object>PyTuple_GET_ITEM(address, 3), 0x7fffffff, &scope):
        return 0
    length[0] = sizeof(sockaddr_in6)
    return address_set_inet6(storage, host, <int>port, <uint32_t>flowinfo, <uint32_t>scope)


cdef int path_from_python(object path, sockaddr_storage *storage, socklen_t *length) except -1:
    if PyUnicode_Check(path):
        try:
            path = PyUnicode_EncodeFSDefault(path)
        except UnicodeError:
            return 0
    elif not PyBytes_CheckExact(path):
        return 0
    length[0] = address_set_unix(storage, PyBytes_AS_STRING(path), PyBytes_GET_SIZE(path))
    return length[0] != 0


cdef inline const char *text_of(object host) noexcept:
    """The text of `host`, borrowed from it; NULL if it cannot be a numeric host (not ASCII, a zero inside, no text)."""
    cdef const char *text
    cdef Py_ssize_t size
    if PyUnicode_Check(host):
        if not PyUnicode_IS_COMPACT_ASCII(host):
            return NULL
        text = PyUnicode_DATA(host)
        size = PyUnicode_GET_LENGTH(host)
    elif PyBytes_CheckExact(host):
        text = PyBytes_AS_STRING(host)
        size = PyBytes_GET_SIZE(host)
    else:
        return NULL
    return text if strlen(text) == <size_t>size else NULL


cdef inline bint number_of(object value, long largest, long *number) noexcept:
    """Whether `value` is an integer from 0 to `largest`; store it in `number`."""
    cdef int overflow
    if not PyLong_Check(value):
        return False
    number[0] = PyLong_AsLongAndOverflow(value, &overflow)
    return overflow == 0 and 0 <= number[0] <= largest


# -- address literals --------------------------------------------------------------------------------------------------

# Flags that make no difference for a literal: each only forbids a lookup that a literal does not need, or concerns a
# host of None (getaddrinfo(3)).
cdef enum:
    FLAGS_WITHOUT_EFFECT = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE

# The socket module's own function; None if it had been replaced before this module was imported.
cdef object genuine_getaddrinfo = socket.getaddrinfo
if getattr(genuine_getaddrinfo, "__globals__", None) is not vars(socket):
    genuine_getaddrinfo = None
# The (family, type, proto) of each entry that the C library returns, in its order, by expansion_key(). Learnt from its
# answers; never replaced.
cdef dict expansions = {}


def resolves_at_once(host, port, flags=0):
    """Whether socket.getaddrinfo() is certain to answer, or to refuse, without asking a resolver or a database.

    The host must be None, or an IPv4 or IPv6 address in the usual form, with or without a zone, or the flags must
    include AI_NUMERICHOST; and the port must be None, or 0 to 65535 as a number or in digits, or the flags must include
    AI_NUMERICSERV. Always false if the program has replaced socket.getaddrinfo()."""
    cdef sockaddr_storage storage
    cdef long bits
    cdef bint zone
    cdef const char *text
    if base_events.socket.getaddrinfo is not genuine_getaddrinfo:
        return False
    if not integer_of(flags, &bits):
        bits = 0
    if host is not None and not bits & AI_NUMERICHOST:
        text = text_of(host)
        if text == NULL or not address_set_literal(&storage, text, &zone):
            return False
    return port is None or bits & AI_NUMERICSERV != 0 or is_port_number(port)


def getaddrinfo_literal(host, port, family=0, type=0, proto=0, flags=0):
    """Return or raise what socket.getaddrinfo() does, if it resolves_at_once(); otherwise return None."""
    cdef sockaddr_storage storage
    cdef sockaddr *address = <sockaddr *>&storage
    cdef int key = expansion_key(host, port, family, type, proto, flags, &storage)
    if key < 0 or base_events.socket.getaddrinfo is not genuine_getaddrinfo:
        if resolves_at_once(host, port, flags):
            return genuine_getaddrinfo(host, port, family, type, proto, flags)
        return None
    if address.sa_family == AF_INET:
        peer = (host_of(address), port)
    else:
        peer = (host_of(address), port, 0, 0)
    expansion = expansions.get(key)
    if expansion is None:
        infos = genuine_getaddrinfo(host, port, family, type, proto, flags)
        if all(info[3:] == ("", peer) for info in infos):
            expansions.setdefault(key, tuple(info[:3] for info in infos))
        return infos
    PySys_Audit(
        "socket.getaddrinfo", "OOiii", <PyObject *>host, <PyObject *>port, <int>family, <int>type, <int>proto
    )
    infos = []
    for entry in <tuple>expansion:
        infos.append((entry[0], entry[1], entry[2], "", peer))
    return infos


cdef int expansion_key(host, port, family, type, proto, flags, sockaddr_storage *storage) except -2:
    """A small number for the arguments that decide which entries there are; -1 if only the C library can answer.

    The host and the number of the port make no difference to them. The host's address goes into `storage`."""
    cdef sockaddr *address = <sockaddr *>storage
    cdef long number, wanted_family, wanted_type, wanted_proto, bits
    cdef bint zone
    cdef const char *text
    if not PyLong_CheckExact(port) or not number_of(port, 0xffff, &number):
        return -1
    if not integer_of(family, &wanted_family) or not number_of(type, SOCK_DGRAM, &wanted_type):
        return -1
    if not integer_of(proto, &wanted_proto) or not integer_of(flags, &bits) or bits & ~FLAGS_WITHOUT_EFFECT:
        return -1
    if wanted_proto == IPPROTO_TCP:
        wanted_proto = 1
    elif wanted_proto == IPPROTO_UDP:
        wanted_proto = 2
    elif wanted_proto != 0:
        return -1
    text = text_of(host)
    if text == NULL or not address_set_literal(storage, text, &zone) or zone or address_may_be_scoped(address):
        return -1
    if wanted_family != 0 and wanted_family != address.sa_family:
        return -1
    return (wanted_type * 3 + wanted_proto) * 2 + (address.sa_family == AF_INET6)


cdef bint is_port_number(object port) noexcept:
    """Whether a port is 0 to 65535, or at most five digits: not a service to be looked up."""
    cdef long number
    cdef const char *text
    if PyLong_Check(port):
        return number_of(port, 0xffff, &number)
    text = text_of(port)
    if text == NULL or not 1 <= strlen(text) <= 5:
        return False
    while b"0"[0] <= text[0] <= b"9"[0]:
        text += 1
    return text[0] == 0


cdef inline bint integer_of(object value, long *number) noexcept:
    cdef int overflow = 1
    number[0] = 0
    if PyLong_Check(value):
        number[0] = PyLong_AsLongAndOverflow(value, &overflow)
    return overflow == 0
