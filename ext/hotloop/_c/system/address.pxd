cimport cython
from cpython.object cimport PyObject

cdef extern from "system/address.h":
    # Only the fields in use here; the system's types have more.
    ctypedef unsigned int socklen_t
    struct sockaddr:
        unsigned short sa_family
    struct sockaddr_storage:
        unsigned short ss_family


# The largest address that an AddressCache keeps, in bytes: one of IPv6.
cdef enum:
    LARGEST_KEY = 28

ctypedef struct address_slot:
    PyObject *object                # owned; NULL: the slot is free
    unsigned char size              # of the key, in bytes
    unsigned char[LARGEST_KEY] key  # the beginning of the address, see address_key_size()


@cython.final
cdef class AddressCache:
    cdef address_slot *slots        # an array of SLOTS; NULL before the first lookup

    cdef object lookup(self, const sockaddr *address, socklen_t length)


cdef bint address_is_native(int family) noexcept
cdef object address_to_python(const sockaddr *address, socklen_t length)
cdef int address_from_python(object address, int family, sockaddr_storage *storage, socklen_t *length) except -1
