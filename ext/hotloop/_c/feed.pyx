"""What arrives for asyncio's streams goes into the StreamReader's buffer, with no Python call in between.

StreamReaderProtocol.data_received() and StreamReader.feed_data() are the same few lines in every supported Python, and
run for every packet of every program that uses streams. Where they are exactly these, neither overridden in a subclass
nor replaced on the class or the object, their work is done here: append, wake the reader, pause at twice the limit.
All else takes the ordinary way.

Source: asyncio/streams.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.method cimport PyMethod_Check, PyMethod_GET_FUNCTION
from cpython.object cimport PyObject

cdef extern from "quiet.h":
    pass

from asyncio import streams

cdef extern from *:
    """
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
    object referent_of(object)

cdef object StreamReader = streams.StreamReader
cdef object StreamReaderProtocol = streams.StreamReaderProtocol
# As they were when this module was imported: asyncio's own.
cdef object data_received = StreamReaderProtocol.data_received
cdef object feed_data = StreamReader.feed_data


cdef bint is_fed_directly(object protocol) except -1:
    """Whether can_feed() is worth asking when data arrives for this protocol."""
    return type(protocol) is StreamReaderProtocol


cdef object can_feed(object protocol):
    """The reader to feed(), or None: data_received() is to be called."""
    cdef object reader
    if not is_method(protocol.data_received, data_received):
        return None
    reader = protocol._stream_reader_wr
    if reader is None:
        return None
    reader = referent_of(reader)
    if type(reader) is not StreamReader or not is_method(reader.feed_data, feed_data):
        return None
    if reader._eof or not PyByteArray_CheckExact(reader._buffer):
        return None
    return reader


cdef inline bint is_method(object method, object function) noexcept:
    """Whether an attribute is a bound method made of this function, neither overridden nor replaced on the object."""
    return PyMethod_Check(method) and PyMethod_GET_FUNCTION(method) == <PyObject *>function


cdef char *extend(object reader, Py_ssize_t size) except NULL:
    """Make the reader's buffer `size` bytes longer, and say where these are.

    BufferError while somebody looks at the buffer, as from bytearray.extend()."""
    cdef object buffer = reader._buffer
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    PyByteArray_Resize(buffer, before + size)
    return PyByteArray_AS_STRING(buffer) + before


cdef int take_back(object reader, Py_ssize_t size) except -1:
    """Make the reader's buffer `size` bytes shorter again."""
    cdef object buffer = reader._buffer
    PyByteArray_Resize(buffer, PyByteArray_GET_SIZE(buffer) - size)
    return 0


cdef int fed(object reader) except -1:
    """There is more in the reader's buffer: what StreamReader.feed_data() does then."""
    cdef object waiter = reader._waiter, transport
    if waiter is not None:
        reader._waiter = None
        if not waiter.cancelled():
            waiter.set_result(None)
    if PyByteArray_GET_SIZE(reader._buffer) > 2 * <Py_ssize_t>reader._limit:
        transport = reader._transport
        if transport is not None and not reader._paused:
            try:
                transport.pause_reading()
            except NotImplementedError:
                reader._transport = None
            else:
                reader._paused = True
    return 0
