"""receive.h, and how many bytes a read asks for."""

from cpython.object cimport PyObject


cdef extern from "system/receive.h":
    ctypedef Py_ssize_t (*bytes_receiver)(int fd, void *buffer, size_t size) noexcept
    PyObject *receive_bytes(bytes_receiver, int fd, Py_ssize_t room, Py_ssize_t *count) except? NULL
    PyObject *receive_waiting(bytes_receiver, int fd, PyObject *data, Py_ssize_t most, Py_ssize_t *count) noexcept


# The most that one read asks for, in bytes; the same as in asyncio's transports.
cdef enum:
    READ_SIZE = 256 * 1024

# From this size on, in bytes, a read goes straight into the object that the protocol gets. For less than that, a copy
# costs less than the large object that would have to be made shorter.
cdef enum:
    DIRECT_READ = 16 * 1024


cdef inline Py_ssize_t next_size(Py_ssize_t count) noexcept:
    """How many bytes a pipe's or a StreamReader's next read makes room for, after a read of `count` bytes. 0: few; read
    into the loop's buffer.

    It is a quarter larger, so that the same amount again does not fill it, which would mean that more may be waiting.
    Not much larger: malloc() returns large blocks to the kernel when they are freed, and gets them from there each
    time."""
    cdef Py_ssize_t size = (count + count // 4) & ~<Py_ssize_t>4095
    return 0 if count < DIRECT_READ else min(size, READ_SIZE)
