"""write_queue.h: data that was written to a transport and that the kernel has not taken yet."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromObject, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.version cimport PY_VERSION_HEX


cdef extern from "<sys/uio.h>":
    struct iovec:
        pass


cdef extern from "transports/write_queue.h":
    ctypedef struct write_queue:
        size_t bytes
        int count

    ctypedef Py_ssize_t (*write_queue_sender)(int fd, iovec *chunks, int count) noexcept

    int write_queue_append(write_queue *, object owner, const char *, size_t)
    void write_queue_clear(write_queue *)
    void write_queue_truncate(write_queue *, int count)
    void write_queue_consume(write_queue *, size_t)
    PyObject *write_queue_front(write_queue *, const char **data, size_t *size)
    size_t write_queue_peek(write_queue *, char *place, size_t room)
    Py_ssize_t write_queue_send(write_queue *, int fd, write_queue_sender, int *full)


# This many bytes are sent, or encrypted, without waiting for the end of the turn: more would not fit into one segment
# anyway.
cdef enum:
    FLUSH_AT = 65536


cdef inline object as_plain_data(object data):
    """The bytes-like object, or a view of it, such that asking for its memory runs no code of the program's. Since
    Python 3.12 a subclass of bytes or bytearray may have a __buffer__(), which is called here, once, and which may do
    anything: nothing that was looked at before holds afterwards."""
    if type(data) is bytes or type(data) is bytearray or type(data) is memoryview or PY_VERSION_HEX < 0x030C0000:
        return data
    return memoryview(data)


cdef inline int write_queue_append_data(write_queue *queue, object data) except -1:
    """Append bytes as they are, other data as a copy, because the caller may change it."""
    cdef bytes owned
    if type(data) is bytes:
        owned = data
    else:
        owned = PyBytes_FromObject(data)
    if write_queue_append(queue, owned, PyBytes_AS_STRING(owned), PyBytes_GET_SIZE(owned)) < 0:
        raise MemoryError
    return 0


cdef inline bint is_plain_bytes(object chunks) except -1:
    """Whether it is a list or a tuple of bytes: nothing to check, and no Python code runs when they are written."""
    if type(chunks) is not list and type(chunks) is not tuple:
        return False
    for data in chunks:
        if type(data) is not bytes:
            return False
    return True


cdef inline list bytes_or_views(object chunks):
    """The arguments of writelines(), all checked before the first is written: TypeError for one that is no bytes-like
    object."""
    cdef list seen = []
    for data in chunks:
        seen.append(data if type(data) is bytes else memoryview(data))
    return seen
