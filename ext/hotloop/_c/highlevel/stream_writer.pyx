"""asyncio.StreamWriter: the compiled short cuts of its methods, and open_connection() and start_server() with the
compiled classes.

Source: asyncio/streams.py.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_operation
from hotloop._c.highlevel.plain_class cimport is_unchanged, plain_class, plain_class_record
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.stream_protocol cimport StreamReaderProtocolFields, is_plain_protocol
from hotloop._c.highlevel.stream_reader cimport StreamReaderFields, is_compiled_reader, is_plain_reader
from hotloop._c.highlevel.waiters cimport wake
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.references cimport Py_NewRef

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define WRITER struct __pyx_obj_7hotloop_2_c_9highlevel_13stream_writer_StreamWriterFields
    #define INSTANCE_DICT_OWNER WRITER
    #define writer_fields_are_set(writer) FIELDS_ARE_SET(WRITER, writer, _transport, _loop)
    #define clear_writer_fields(writer) FIELDS_CLEAR(WRITER, writer, _transport, _complete_fut)
    #define fill_writer_fields(writer) FIELDS_FILL(WRITER, writer, _transport, _loop)
    #define set_complete_future(writer, future) FIELD_SET(WRITER, writer, _complete_fut, future)
    #define add_writer_fields(type) \\
        FIELDS_INSTALL(type, FIELD(WRITER, _transport), FIELD(WRITER, _protocol), FIELD(WRITER, _reader), \\
                       FIELD(WRITER, _loop), FIELD(WRITER, _complete_fut))
    """
    int add_writer_fields(PyTypeObject *) except -1
    bint writer_fields_are_set(object) noexcept
    void clear_writer_fields(object) noexcept
    bint fill_writer_fields(object) noexcept
    void set_complete_future(object writer, object future) noexcept

cdef extern from "Python.h":
    PyObject *PyObject_Vectorcall(object, PyObject **arguments, size_t count, PyObject *keywords) except NULL

from asyncio import streams

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._asyncio.compiled_streams import set_compiled_streams, with_compiled_streams
from hotloop._c.highlevel.stream_protocol import StreamReaderProtocol
from hotloop._c.highlevel.stream_reader import StreamReader


cdef class StreamWriterFields:
    """What a StreamWriter consists of. The class that programs see derives from this one and from
    asyncio.StreamWriter."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _transport
    cdef object _protocol
    cdef object _reader             # None: there is none
    cdef object _loop
    cdef object _complete_fut       # a future that is done; for asyncio's own methods

    def __cinit__(self):
        instance_dict_clear(self)
        clear_writer_fields(self)


instance_dict_install(<PyTypeObject *>StreamWriterFields)
add_writer_fields(<PyTypeObject *>StreamWriterFields)

cdef plain_class writer_class


cdef bint is_plain_writer(PyObject *writer) noexcept:
    """Whether its class is StreamWriter itself, and its attributes are there."""
    return (
        is_unchanged(writer, &writer_class)
        and instance_dict_is_absent(<object>writer)
        and writer_fields_are_set(<object>writer)
    )


# What asyncio's constructor may contain for the short cut to know all of it.
cdef bint init_is_known = set(streams.StreamWriter.__init__.__code__.co_names) <= {
    "isinstance", "StreamReader", "_transport", "_protocol", "_reader", "_loop", "_complete_fut", "create_future",
    "set_result",
}


cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    """As asyncio's functions call it, without keywords."""
    cdef StreamWriterFields writer
    cdef object reader, future
    if count != 5 or keywords != NULL or not is_unchanged(arguments[0], &writer_class) or not init_is_known:
        return NULL
    reader = <object>arguments[3]
    if reader is not None and not is_compiled_reader(reader):
        return NULL
    writer = <StreamWriterFields>arguments[0]
    if not fill_writer_fields(writer):
        return NULL
    writer._transport = <object>arguments[1]
    writer._protocol = <object>arguments[2]
    writer._reader = reader
    writer._loop = <object>arguments[4]
    future = (<object>arguments[4]).create_future()
    set_complete_future(writer, future)
    wake(future, None)
    return Py_NewRef(None)


cdef object transport_of(PyObject **arguments, Py_ssize_t count, Py_ssize_t wanted, PyObject *keywords):
    """The transport that a short cut may call: that of a plain writer, if there are `wanted` arguments in all. None:
    asyncio's own method has to be called."""
    if count != wanted or keywords != NULL or not is_plain_writer(arguments[0]):
        return None
    return (<StreamWriterFields>arguments[0])._transport


cdef PyObject *write(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 2, keywords)
    if transport is None:
        return NULL
    transport.write(<object>arguments[1])
    return Py_NewRef(None)


cdef PyObject *writelines(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 2, keywords)
    if transport is None:
        return NULL
    transport.writelines(<object>arguments[1])
    return Py_NewRef(None)


cdef PyObject *write_eof(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 1, keywords)
    if transport is None:
        return NULL
    return Py_NewRef(transport.write_eof())


cdef PyObject *close(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 1, keywords)
    if transport is None:
        return NULL
    return Py_NewRef(transport.close())


cdef PyObject *is_closing(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 1, keywords)
    if transport is None:
        return NULL
    return Py_NewRef(transport.is_closing())


cdef PyObject *get_extra_info(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object transport = transport_of(arguments, count, 3 if count == 3 else 2, keywords)
    if transport is None:
        return NULL
    return Py_NewRef(transport.get_extra_info(<object>arguments[1], None if count == 2 else <object>arguments[2]))


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef enum:
    TURN_PASSED = 1                 # of the event loop, so that a closed transport has told its protocol
    DRAINED = 2
    CONNECTION_CLOSED = 3


cdef object drain_step(Coroutine coroutine, object outcome, object error):
    cdef object writer = coroutine.owner, transport, protocol
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if error is not None:
        raise_again(error)
    if coroutine.position == DRAINED:
        return None
    if coroutine.position == 0:
        if not is_plain_writer(<PyObject *>writer) or not reads_on((<StreamWriterFields>writer)._reader):
            return delegate(coroutine, asyncio_drain(writer))
        transport = (<StreamWriterFields>writer)._transport
        if transport.is_closing():
            coroutine.position = TURN_PASSED
            return await_object(coroutine, streams.sleep(0))
    # Any code may have run by now.
    if is_plain_writer(<PyObject *>writer):
        protocol = (<StreamWriterFields>writer)._protocol
        if is_plain_protocol(<PyObject *>protocol) and has_room(<StreamReaderProtocolFields>protocol):
            return None
    coroutine.position = DRAINED
    return await_object(coroutine, writer._protocol._drain_helper())


cdef inline bint reads_on(object reader) noexcept:
    """Whether a writer's reader is known to have no exception."""
    return reader is None or (is_plain_reader(<PyObject *>reader) and (<StreamReaderFields>reader)._exception is None)


cdef inline bint has_room(StreamReaderProtocolFields protocol) noexcept:
    """Whether _drain_helper() returns at once."""
    return not protocol._connection_lost and not protocol._paused


cdef object wait_closed_step(Coroutine coroutine, object outcome, object error):
    cdef object writer = coroutine.owner
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if error is not None:
        raise_again(error)
    if coroutine.position == CONNECTION_CLOSED:
        return None
    if not is_plain_writer(<PyObject *>writer):
        return delegate(coroutine, asyncio_wait_closed(writer))
    coroutine.position = CONNECTION_CLOSED
    return await_object(coroutine, writer._protocol._get_close_waiter(writer))


# -- the class, and the functions that make its objects ----------------------------------------------------------------

cdef object AsyncioWriter = streams.StreamWriter
cdef object asyncio_drain = AsyncioWriter.drain
cdef object asyncio_wait_closed = AsyncioWriter.wait_closed
cdef Operation drain_operation = new_operation(drain_step, asyncio_drain)
cdef Operation wait_closed_operation = new_operation(wait_closed_step, asyncio_wait_closed)

StreamWriter = compiled_class(
    StreamWriterFields,
    AsyncioWriter,
    __init__=compiled_function(AsyncioWriter.__init__, init),
    write=compiled_function(AsyncioWriter.write, write),
    writelines=compiled_function(AsyncioWriter.writelines, writelines),
    write_eof=compiled_function(AsyncioWriter.write_eof, write_eof),
    close=compiled_function(AsyncioWriter.close, close),
    is_closing=compiled_function(AsyncioWriter.is_closing, is_closing),
    get_extra_info=compiled_function(AsyncioWriter.get_extra_info, get_extra_info),
    drain=coroutine_method(asyncio_drain, drain_operation, 1, &writer_class),
    wait_closed=coroutine_method(asyncio_wait_closed, wait_closed_operation, 1, &writer_class),
)
plain_class_record(&writer_class, StreamWriter)

set_compiled_streams(StreamReader, StreamReaderProtocol, StreamWriter)


cdef PyObject *open_connection_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    return PyObject_Vectorcall(with_ours[0], arguments, count, keywords)


cdef PyObject *start_server_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    return PyObject_Vectorcall(with_ours[1], arguments, count, keywords)


cdef PyObject *open_unix_connection_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    return PyObject_Vectorcall(with_ours[2], arguments, count, keywords)


cdef PyObject *start_unix_server_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    return PyObject_Vectorcall(with_ours[3], arguments, count, keywords)


cdef list with_ours = [
    with_compiled_streams(function)
    for function in (
        streams.open_connection, streams.start_server, streams.open_unix_connection, streams.start_unix_server
    )
]
open_connection = compiled_function(streams.open_connection, open_connection_)
start_server = compiled_function(streams.start_server, start_server_)
open_unix_connection = compiled_function(streams.open_unix_connection, open_unix_connection_)
start_unix_server = compiled_function(streams.start_unix_server, start_unix_server_)
