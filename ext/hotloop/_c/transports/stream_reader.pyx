"""Received data goes directly into the buffer of an asyncio.StreamReader, without a Python call.

StreamReaderProtocol.data_received() and StreamReader.feed_data() are the same few lines in every supported Python, and
run for every packet of every program that uses streams. Unless a subclass overrides them or a program has replaced them
on the class or the object, this module does their work: append, wake the reader, pause at twice the limit. Otherwise
the transport calls data_received().

Source: asyncio/streams.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE, PyByteArray_Resize

from hotloop._c.runtime.bound_methods cimport is_method

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

    /* Set a smaller size without a reallocation, which could fail. The next resize frees the surplus memory. */
    static inline void shorten(PyObject *buffer, Py_ssize_t size)
    {
        Py_SET_SIZE((PyVarObject *)buffer, size);
        PyByteArray_AS_STRING(buffer)[size] = '\\0';
    }
    """
    object referent_of(object)
    void shorten(object buffer, Py_ssize_t size) noexcept

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    bint PyWeakref_CheckRefExact(object)
    long PyLong_AsLongAndOverflow(object, int *overflow) except? -1
    long LONG_MAX

cdef object StreamReader = streams.StreamReader
cdef object StreamReaderProtocol = streams.StreamReaderProtocol
# asyncio's own functions, as they were when this module was imported.
cdef object data_received = StreamReaderProtocol.data_received
cdef object feed_data = StreamReader.feed_data
cdef object wakeup_waiter = StreamReader._wakeup_waiter


cdef bint is_stream_reader_protocol(object protocol) except -1:
    """Whether reader_to_feed() is worth asking when data arrives for this protocol."""
    return type(protocol) is StreamReaderProtocol


cdef object reader_to_feed(object protocol):
    """The protocol's reader, or None if data_received() has to be called."""
    cdef object reader
    # The program may have set another __class__ since the protocol was set.
    if type(protocol) is not StreamReaderProtocol or not is_method(protocol.data_received, protocol, data_received):
        return None
    reader = protocol._stream_reader_wr
    if not PyWeakref_CheckRefExact(reader):
        return None
    reader = referent_of(reader)
    if (
        type(reader) is not StreamReader
        or not is_method(reader.feed_data, reader, feed_data)
        or not is_method(reader._wakeup_waiter, reader, wakeup_waiter)
    ):
        return None
    if reader._eof or not PyByteArray_CheckExact(reader._buffer):
        return None
    return reader


cdef char *reserve_space(object reader, Py_ssize_t size) except NULL:
    """Make the reader's buffer `size` bytes longer, and return the address of these bytes.

    BufferError while a memoryview of the buffer exists, as from bytearray.extend()."""
    cdef object buffer = reader._buffer
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    PyByteArray_Resize(buffer, before + size)
    return PyByteArray_AS_STRING(buffer) + before


cdef int return_space(object reader, Py_ssize_t size) except -1:
    """Make the reader's buffer `size` bytes shorter again."""
    cdef object buffer = reader._buffer
    shorten(buffer, PyByteArray_GET_SIZE(buffer) - size)
    return 0


cdef int wake_reader(object reader) except -1:
    """After data was added to the reader's buffer: do what StreamReader.feed_data() does then."""
    cdef object waiter = reader._waiter, transport
    if waiter is not None:
        reader._waiter = None
        if not waiter.cancelled():
            waiter.set_result(None)
    transport = reader._transport
    if transport is not None and not reader._paused and is_too_full(reader):
        try:
            transport.pause_reading()
        except NotImplementedError:
            reader._transport = None
        else:
            reader._paused = True
    return 0


cdef inline bint is_too_full(object reader) except -1:
    """Whether the reader's buffer holds more than twice its limit, which may be any object that compares with an
    int."""
    cdef object limit = reader._limit
    cdef int overflow = 0
    cdef long number
    if PyLong_CheckExact(limit):
        number = PyLong_AsLongAndOverflow(limit, &overflow)
        if not overflow and -LONG_MAX // 2 < number < LONG_MAX // 2:
            return PyByteArray_GET_SIZE(reader._buffer) > 2 * number
    return len(reader._buffer) > 2 * limit
