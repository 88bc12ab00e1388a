"""receive.h, and how much a read asks for."""

from cpython.object cimport PyObject


cdef extern from "system/receive.h":
    ctypedef Py_ssize_t (*bytes_receiver)(int fd, void *buffer, size_t size) noexcept
    PyObject *receive_bytes(bytes_receiver, int fd, Py_ssize_t room, Py_ssize_t *count) except? NULL


# The most that one read brings, in bytes; as much as asyncio's transports read.
cdef enum:
    READ_SIZE = 256 * 1024

# From this size on a read goes straight into the object that the protocol gets; copying less costs less than guessing.
cdef enum:
    DIRECT_READ = 16 * 1024


cdef inline Py_ssize_t next_size(Py_ssize_t count) noexcept:
    """How much to have ready for the next read, when this one has brought `count` bytes: a quarter more, so that the
    same again does not look as if there were more to come; 0: read into the loop's buffer. Much more would go to the
    kernel and back each time, because beyond some size malloc() does not keep what is freed."""
    cdef Py_ssize_t size = (count + count // 4) & ~<Py_ssize_t>4095
    return 0 if count < DIRECT_READ else min(size, READ_SIZE)
