"""asyncio.StreamReaderProtocol: the compiled short cuts of its methods.

A connection's beginning and end are asyncio's own code; what is compiled is received data and flow control.

Source: asyncio/streams.py.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_operation
from hotloop._c.highlevel.deque cimport deque_check, deque_install, deque_new
from hotloop._c.highlevel.plain_class cimport is_unchanged, plain_class, plain_class_record
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.stream_reader cimport feed_plain_reader, is_compiled_reader
from hotloop._c.highlevel.waiters cimport is_done, wake
from hotloop._c.runtime.bound_methods cimport is_method
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.references cimport Py_NewRef
from hotloop._c.runtime.weak_references cimport PyWeakref_CheckRefExact, referent_of

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define PROTOCOL struct __pyx_obj_7hotloop_2_c_9highlevel_15stream_protocol_StreamReaderProtocolFields
    #define INSTANCE_DICT_OWNER PROTOCOL
    #define protocol_fields_are_set(protocol) FIELDS_ARE_SET(PROTOCOL, protocol, _loop, _stream_reader_wr)
    #define clear_protocol_fields(protocol) FIELDS_CLEAR(PROTOCOL, protocol, _loop, _stream_writer)
    #define fill_protocol_fields(protocol) FIELDS_FILL(PROTOCOL, protocol, _loop, _source_traceback)
    #define set_closed(protocol, future) FIELD_SET(PROTOCOL, protocol, _closed, future)
    #define set_strong_reader(protocol, reader) FIELD_SET(PROTOCOL, protocol, _strong_reader, reader)
    #define set_stream_writer(protocol, writer) FIELD_SET(PROTOCOL, protocol, _stream_writer, writer)
    #define add_protocol_fields(type) \\
        FIELDS_INSTALL(type, FIELD(PROTOCOL, _loop), FIELD(PROTOCOL, _paused), FIELD(PROTOCOL, _drain_waiters), \\
                       FIELD(PROTOCOL, _connection_lost), FIELD(PROTOCOL, _stream_reader_wr), \\
                       FIELD(PROTOCOL, _reject_connection), FIELD(PROTOCOL, _task), FIELD(PROTOCOL, _transport), \\
                       FIELD(PROTOCOL, _client_connected_cb), FIELD(PROTOCOL, _over_ssl), \\
                       FIELD_OR_NONE(PROTOCOL, _source_traceback), FIELD(PROTOCOL, _closed), \\
                       FIELD(PROTOCOL, _strong_reader), FIELD(PROTOCOL, _stream_writer))
    """
    int add_protocol_fields(PyTypeObject *) except -1
    bint protocol_fields_are_set(object) noexcept
    void clear_protocol_fields(object) noexcept
    bint fill_protocol_fields(object) noexcept
    void set_closed(object protocol, object future) noexcept
    void set_strong_reader(object protocol, object reader) noexcept
    void set_stream_writer(object protocol, object writer) noexcept

cdef extern from "Python.h":
    bint PyBool_Check(object)
    PyObject *PyObject_Vectorcall(object, PyObject **arguments, size_t count, PyObject *keywords) except NULL
    object PyWeakref_NewRef(object referent, PyObject *callback)

from asyncio import streams
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._asyncio.compiled_streams import with_compiled_streams

deque_install(deque)


cdef class StreamReaderProtocolFields:
    """What a StreamReaderProtocol consists of. The class that programs see derives from this one and from
    asyncio.StreamReaderProtocol."""

    def __cinit__(self):
        instance_dict_clear(self)
        clear_protocol_fields(self)


instance_dict_install(<PyTypeObject *>StreamReaderProtocolFields)
add_protocol_fields(<PyTypeObject *>StreamReaderProtocolFields)

cdef plain_class protocol_class


cdef bint is_plain_protocol(PyObject *protocol) noexcept:
    """Whether its class is StreamReaderProtocol itself, and its attributes are there and of the types that the
    constructor gave them."""
    return (
        is_unchanged(protocol, &protocol_class)
        and instance_dict_is_absent(<object>protocol)
        and protocol_fields_are_set(<object>protocol)
        and has_usual_types(<StreamReaderProtocolFields>protocol)
    )


cdef inline bint has_usual_types(StreamReaderProtocolFields protocol) noexcept:
    return (
        PyBool_Check(protocol._paused)
        and PyBool_Check(protocol._connection_lost)
        and deque_check(protocol._drain_waiters)
    )


cdef inline bint applies(PyObject **arguments, Py_ssize_t count, Py_ssize_t wanted, PyObject *keywords) noexcept:
    """Whether a short cut may do a call: a plain protocol, with `wanted` arguments in all."""
    return count == wanted and keywords == NULL and is_plain_protocol(arguments[0])


# -- the constructor ---------------------------------------------------------------------------------------------------

# What asyncio's constructor may contain for the short cut to know all of it.
cdef bint init_is_known = set(streams.StreamReaderProtocol.__init__.__code__.co_names) <= {
    "super", "__init__", "weakref", "ref", "_stream_reader_wr", "_source_traceback", "_strong_reader",
    "_reject_connection", "_stream_writer", "_task", "_transport", "_client_connected_cb", "_over_ssl", "_closed",
    "_loop", "create_future",
}
cdef bint has_stream_writer = "_stream_writer" in streams.StreamReaderProtocol.__init__.__code__.co_names


cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    """As asyncio's functions call it: with a reader, for a server also a callback, and loop=."""
    cdef StreamReaderProtocolFields protocol
    cdef object reader, loop, waiters, reference, traceback
    if not 2 <= count <= 3 or keywords == NULL or not is_unchanged(arguments[0], &protocol_class):
        return NULL
    if <tuple>keywords != ("loop",) or not init_is_known:
        return NULL
    reader = <object>arguments[1]
    loop = <object>arguments[count]
    if loop is None or not is_compiled_reader(reader):
        return NULL
    protocol = <StreamReaderProtocolFields>arguments[0]
    waiters = deque_new()
    reference = PyWeakref_NewRef(reader, NULL)
    traceback = reader._source_traceback
    if not fill_protocol_fields(protocol):
        return NULL
    protocol._loop = loop
    protocol._paused = False
    protocol._drain_waiters = waiters
    protocol._connection_lost = False
    protocol._stream_reader_wr = reference
    protocol._source_traceback = traceback
    protocol._client_connected_cb = None if count == 2 else <object>arguments[2]
    protocol._reject_connection = False
    protocol._task = None
    protocol._transport = None
    protocol._over_ssl = False
    # These may hold something that has a finalizer, if the constructor is called again.
    if count == 3 and <object>arguments[2] is not None:
        # A server's: it keeps the reader until the connection is made.
        set_strong_reader(protocol, reader)
    if has_stream_writer:
        set_stream_writer(protocol, None)
    set_closed(protocol, loop.create_future())
    return Py_NewRef(None)


cdef PyObject *connection_made(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    return PyObject_Vectorcall(connection_made_with_ours, arguments, count, keywords)


# -- received data -----------------------------------------------------------------------------------------------------

cdef bint is_compiled_protocol(object protocol) noexcept:
    """Whether its class is StreamReaderProtocol itself, changed or not."""
    return type(protocol) is compiled_protocol


cdef bint receives_directly(object protocol) except -1:
    """Whether data_received(), of an object whose class is StreamReaderProtocol itself, is the class's own."""
    return is_plain_protocol(<PyObject *>protocol) or is_method(
        protocol.data_received, protocol, compiled_data_received
    )


cdef object reader_reference(object protocol):
    """`_stream_reader_wr`, of any protocol."""
    if is_plain_protocol(<PyObject *>protocol):
        return (<StreamReaderProtocolFields>protocol)._stream_reader_wr
    return protocol._stream_reader_wr


cdef PyObject *data_received(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object reader
    if not applies(arguments, count, 2, keywords):
        return NULL
    reader = (<StreamReaderProtocolFields>arguments[0])._stream_reader_wr
    if not PyWeakref_CheckRefExact(reader):
        return NULL
    reader = referent_of(reader)
    if not feed_plain_reader(reader, <object>arguments[1]):
        return NULL
    return Py_NewRef(None)


# -- flow control ------------------------------------------------------------------------------------------------------

cdef PyObject *pause_writing(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords) or (<StreamReaderProtocolFields>arguments[0])._paused:
        return NULL
    set_paused(<StreamReaderProtocolFields>arguments[0], True, "%r pauses writing")
    return Py_NewRef(None)


cdef PyObject *resume_writing(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object protocol
    if not applies(arguments, count, 1, keywords) or not (<StreamReaderProtocolFields>arguments[0])._paused:
        return NULL
    protocol = <object>arguments[0]
    set_paused(<StreamReaderProtocolFields>arguments[0], False, "%r resumes writing")
    for waiter in protocol._drain_waiters:
        if not is_done(waiter):
            wake(waiter, None)
    return Py_NewRef(None)


cdef int set_paused(StreamReaderProtocolFields protocol, bint paused, object report) except -1:
    cdef object loop = protocol._loop
    protocol._paused = paused
    if loop.get_debug():
        streams.logger.debug(report, protocol)
    return 0


cdef enum:
    WOKEN = 1


cdef object drain_helper_step(Coroutine coroutine, object outcome, object error):
    cdef object protocol = coroutine.owner, waiter, loop
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == WOKEN:
        protocol._drain_waiters.remove(coroutine.extra)
        if error is not None:
            raise_again(error)
        return None
    if not is_plain_protocol(<PyObject *>protocol) or (<StreamReaderProtocolFields>protocol)._connection_lost:
        return delegate(coroutine, asyncio_drain_helper(protocol))
    if not (<StreamReaderProtocolFields>protocol)._paused:
        return None
    loop = (<StreamReaderProtocolFields>protocol)._loop
    waiter = loop.create_future()
    protocol._drain_waiters.append(waiter)
    coroutine.extra = waiter
    coroutine.position = WOKEN
    return await_object(coroutine, waiter)


# -- the class ---------------------------------------------------------------------------------------------------------

cdef object AsyncioProtocol = streams.StreamReaderProtocol
cdef object connection_made_with_ours = with_compiled_streams(AsyncioProtocol.connection_made)
cdef object asyncio_drain_helper = AsyncioProtocol._drain_helper
cdef object compiled_data_received = compiled_function(AsyncioProtocol.data_received, data_received)
cdef Operation drain_helper_operation = new_operation(drain_helper_step, asyncio_drain_helper)

StreamReaderProtocol = compiled_class(
    StreamReaderProtocolFields,
    AsyncioProtocol,
    __init__=compiled_function(AsyncioProtocol.__init__, init),
    connection_made=compiled_function(AsyncioProtocol.connection_made, connection_made),
    data_received=compiled_data_received,
    pause_writing=compiled_function(AsyncioProtocol.pause_writing, pause_writing),
    resume_writing=compiled_function(AsyncioProtocol.resume_writing, resume_writing),
    _drain_helper=coroutine_method(asyncio_drain_helper, drain_helper_operation, 1, &protocol_class),
)
cdef object compiled_protocol = StreamReaderProtocol
plain_class_record(&protocol_class, StreamReaderProtocol)
