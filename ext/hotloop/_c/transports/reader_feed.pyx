"""Received data goes directly into the buffer of an asyncio.StreamReader, without a Python call.

StreamReaderProtocol.data_received() and StreamReader.feed_data() are the same few lines in every supported Python, and
run for every packet of every program that uses streams. Unless a subclass overrides them or a program has replaced them
on the class or the object, this module does their work: append, wake the reader, pause at twice the limit. Otherwise
the transport calls data_received(). It knows asyncio's classes and the compiled ones (highlevel/), in any combination.

Source: asyncio/streams.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE, PyByteArray_Resize

from hotloop._c.highlevel.stream_protocol cimport is_compiled_protocol, reader_reference, receives_directly
from hotloop._c.highlevel.stream_reader cimport buffer_of, data_added, feeds_directly, is_compiled_reader
from hotloop._c.runtime.bound_methods cimport is_method
from hotloop._c.runtime.byte_arrays cimport byte_array_shorten
from hotloop._c.runtime.weak_references cimport PyWeakref_CheckRefExact, referent_of

from asyncio import streams

cdef object StreamReader = streams.StreamReader
cdef object StreamReaderProtocol = streams.StreamReaderProtocol
# asyncio's own functions, as they were when this module was imported.
cdef object data_received = StreamReaderProtocol.data_received
cdef object feed_data = StreamReader.feed_data
cdef object wakeup_waiter = StreamReader._wakeup_waiter


cdef bint is_stream_reader_protocol(object protocol) except -1:
    """Whether reader_to_feed() is worth asking when data arrives for this protocol."""
    return type(protocol) is StreamReaderProtocol or is_compiled_protocol(protocol)


cdef object reader_to_feed(object protocol):
    """The protocol's reader, or None if data_received() has to be called."""
    cdef object reader
    if is_compiled_protocol(protocol):
        if not receives_directly(protocol):
            return None
    # The program may have set another __class__ since the protocol was set.
    elif type(protocol) is not StreamReaderProtocol or not is_method(protocol.data_received, protocol, data_received):
        return None
    reader = reader_reference(protocol)
    if not PyWeakref_CheckRefExact(reader):
        return None
    reader = referent_of(reader)
    if is_compiled_reader(reader):
        return reader if feeds_directly(reader) else None
    if (
        type(reader) is not StreamReader
        or not is_method(reader.feed_data, reader, feed_data)
        or not is_method(reader._wakeup_waiter, reader, wakeup_waiter)
    ):
        return None
    if reader._eof or not PyByteArray_CheckExact(reader._buffer):
        return None
    return reader


cdef object buffer_to_feed(object reader):
    """`_buffer` of what reader_to_feed() has returned. To be asked once, because a program may have made it a property;
    TypeError if that does not give a bytearray any more."""
    cdef object buffer = buffer_of(reader)
    if not PyByteArray_CheckExact(buffer):
        raise TypeError(f"the reader's buffer is a {type(buffer).__name__} and no bytearray")
    return buffer


cdef char *reserve_space(object buffer, Py_ssize_t size) except NULL:
    """Make a reader's buffer `size` bytes longer, and return the address of these bytes.

    BufferError while a memoryview of the buffer exists, as from bytearray.extend()."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(buffer)
    PyByteArray_Resize(buffer, before + size)
    return PyByteArray_AS_STRING(buffer) + before


cdef int return_space(object buffer, Py_ssize_t size) except -1:
    """Make a reader's buffer `size` bytes shorter again."""
    byte_array_shorten(buffer, PyByteArray_GET_SIZE(buffer) - size)
    return 0


cdef int wake_reader(object reader) except -1:
    """After data was added to the reader's buffer: do what StreamReader.feed_data() does then."""
    return data_added(reader)
