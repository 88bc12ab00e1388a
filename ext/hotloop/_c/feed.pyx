"""What arrives for asyncio's streams goes into the StreamReader's buffer, with no Python call in between.

StreamReaderProtocol.data_received() and StreamReader.feed_data() are the same few lines in every supported Python, and
run for every packet of every program that uses streams. Where they are exactly these, neither overridden in a subclass
nor replaced on the class or the object, their work is done here: append, wake the reader, pause at twice the limit.
All else takes the ordinary way.

Source: asyncio/streams.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.string cimport memcpy

cdef extern from "quiet.h":
    pass

from asyncio import streams

cdef extern from *:
    """
    static inline unsigned int version_of_type(PyObject *type) { return ((PyTypeObject *)type)->tp_version_tag; }

    static inline PyObject *referent_of(PyObject *reference)
    {
        PyObject *object = NULL;
    #if PY_VERSION_HEX >= 0x030D0000
        if (PyWeakref_GetRef(reference, &object) == 0)
            object = Py_NewRef(Py_None);
    #else
        object = PyWeakref_GetObject(reference);
        Py_XINCREF(object);
    #endif
        return object;
    }
    """
    unsigned int version_of_type(object)
    object referent_of(object)

cdef object StreamReader = streams.StreamReader
cdef object StreamReaderProtocol = streams.StreamReaderProtocol
# As they were when this module was imported: asyncio's own.
cdef object data_received = StreamReaderProtocol.data_received
cdef object feed_data = StreamReader.feed_data
cdef object wakeup_waiter = StreamReader._wakeup_waiter
# Of the two classes, when they were last seen to have these methods; 0: never, or they have others.
cdef unsigned int protocol_version = 0
cdef unsigned int reader_version = 0


cdef bint is_fed_directly(object protocol) except -1:
    """Whether can_feed() is worth asking when data arrives for this protocol."""
    return type(protocol) is StreamReaderProtocol and "data_received" not in protocol.__dict__


cdef object can_feed(object protocol):
    """The reader to feed(), or None: data_received() is to be called."""
    cdef object reader
    if (
        protocol_version == 0
        or version_of_type(StreamReaderProtocol) != protocol_version
        or version_of_type(StreamReader) != reader_version
    ):
        find_replaced()
        if protocol_version == 0:
            return None
    reader = protocol._stream_reader_wr
    if reader is None:
        return None
    reader = referent_of(reader)
    if type(reader) is not StreamReader or reader._eof or not PyByteArray_CheckExact(reader._buffer):
        return None
    return reader


cdef int find_replaced() except -1:
    """A class's version changes with every change of it or of one of its bases."""
    global protocol_version, reader_version
    if (
        StreamReaderProtocol.data_received is data_received
        and StreamReader.feed_data is feed_data
        and StreamReader._wakeup_waiter is wakeup_waiter
    ):
        protocol_version = version_of_type(StreamReaderProtocol)
        reader_version = version_of_type(StreamReader)
    else:
        protocol_version = reader_version = 0
    return 0


cdef int feed(object protocol, object reader, const char *data, Py_ssize_t size) except -1:
    """What StreamReader.feed_data() does."""
    cdef object buffer = reader._buffer, waiter, transport
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    # BufferError while somebody looks at the buffer, as from bytearray.extend().
    PyByteArray_Resize(buffer, before + size)
    memcpy(PyByteArray_AS_STRING(buffer) + before, data, size)
    waiter = reader._waiter
    if waiter is not None:
        reader._waiter = None
        if not waiter.cancelled():
            waiter.set_result(None)
    if before + size > 2 * <Py_ssize_t>reader._limit:
        transport = reader._transport
        if transport is not None and not reader._paused:
            try:
                transport.pause_reading()
            except NotImplementedError:
                reader._transport = None
            else:
                reader._paused = True
    return 0
