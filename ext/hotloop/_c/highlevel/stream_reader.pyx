"""asyncio.StreamReader: the compiled short cuts of its methods.

A read that finds its data in the buffer takes it without waiting. Otherwise it waits for a future, as in asyncio, and
looks again. All that asyncio raises, it raises itself: as long as nothing was taken from the buffer, its own coroutine
finds on the same attributes what the short cut found.

Source: asyncio/streams.py. Versions differ in readuntil() with a tuple of separators, which is asyncio's own here, and
in how they copy bytes.
"""

from cpython.bytearray cimport PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_coroutine, new_operation
from hotloop._c.highlevel.plain_class cimport is_unchanged, plain_class, plain_class_record
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport is_our_future
from hotloop._c.runtime.bound_methods cimport is_method
from hotloop._c.runtime.byte_arrays cimport (
    byte_array_append,
    byte_array_find,
    byte_array_is_exported,
    byte_array_take_front,
)
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.references cimport Py_NewRef
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport CANCELLED, state_of
from hotloop._c.tasks.thrown_exceptions cimport exception_matches

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define READER struct __pyx_obj_7hotloop_2_c_9highlevel_13stream_reader_StreamReaderFields
    #define INSTANCE_DICT_OWNER READER
    #define reader_fields_are_set(reader) FIELDS_ARE_SET(READER, reader, _limit, _paused)
    #define clear_reader_fields(reader) FIELDS_CLEAR(READER, reader, _limit, _paused)
    #define fill_reader_fields(reader) FIELDS_FILL(READER, reader, _limit, _paused)
    #define has_buffer(reader) (((READER *)(reader))->_buffer != NULL)
    #define set_waiter_field(reader, waiter) FIELD_SET(READER, reader, _waiter, waiter)
    #define add_reader_fields(type) \\
        FIELDS_INSTALL(type, FIELD(READER, _limit), FIELD(READER, _loop), FIELD(READER, _buffer), \\
                       FIELD(READER, _eof), FIELD(READER, _waiter), FIELD(READER, _exception), \\
                       FIELD(READER, _transport), FIELD(READER, _paused))
    """
    int add_reader_fields(PyTypeObject *) except -1
    bint reader_fields_are_set(object) noexcept
    void clear_reader_fields(object) noexcept
    bint fill_reader_fields(object) noexcept
    bint has_buffer(object) noexcept
    void set_waiter_field(object reader, object waiter) noexcept

cdef extern from "Python.h":
    bint PyBool_Check(object)
    bint PyFloat_CheckExact(object)
    bint PyLong_CheckExact(object)
    long PyLong_AsLongAndOverflow(object, int *overflow) except? -1
    long LONG_MAX
    int INT_MAX

from asyncio import exceptions, streams

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._asyncio.resumed_read import BegunReader

cdef object IncompleteReadError = exceptions.IncompleteReadError
cdef object LimitOverrunError = exceptions.LimitOverrunError


# What a StreamReader consists of. The class that programs see derives from this one and from asyncio.StreamReader. That
# has no docstring, and inspect.getdoc() would find one here.
cdef class StreamReaderFields:

    def __cinit__(self):
        instance_dict_clear(self)
        clear_reader_fields(self)


instance_dict_install(<PyTypeObject *>StreamReaderFields)
add_reader_fields(<PyTypeObject *>StreamReaderFields)

cdef plain_class reader_class


cdef bint is_plain_reader(PyObject *reader) noexcept:
    """Whether its class is StreamReader itself, its attributes are there and of the types that the constructor gave
    them, and its buffer is not exported."""
    return (
        is_unchanged(reader, &reader_class)
        and instance_dict_is_absent(<object>reader)
        and reader_fields_are_set(<object>reader)
        and has_usual_types(<StreamReaderFields>reader)
    )


cdef inline bint has_usual_types(StreamReaderFields reader) noexcept:
    return (
        PyByteArray_CheckExact(reader._buffer)
        and not byte_array_is_exported(reader._buffer)
        and PyBool_Check(reader._eof)
        and PyBool_Check(reader._paused)
        and (PyLong_CheckExact(reader._limit) or PyFloat_CheckExact(reader._limit))
    )


cdef inline Py_ssize_t size(StreamReaderFields reader) noexcept:
    return PyByteArray_GET_SIZE(reader._buffer)


cdef inline bint exceeds(Py_ssize_t count, object limit, int multiple) except -1:
    """Whether `count` > `multiple` * `limit`, for any limit."""
    cdef int overflow = 0
    cdef long number
    if PyLong_CheckExact(limit):
        number = PyLong_AsLongAndOverflow(limit, &overflow)
        if not overflow and -LONG_MAX // 2 < number < LONG_MAX // 2:
            return count > multiple * number
    return count > multiple * limit


# -- the constructor ---------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    """As asyncio's functions call it: with limit= and loop=."""
    cdef StreamReaderFields reader
    cdef object limit, loop, buffer
    if count != 1 or keywords == NULL or not is_unchanged(arguments[0], &reader_class):
        return NULL
    if <tuple>keywords != ("limit", "loop"):
        return NULL
    limit = <object>arguments[1]
    loop = <object>arguments[2]
    if not PyLong_CheckExact(limit) or limit <= 0 or loop is None or loop.get_debug():
        return NULL
    reader = <StreamReaderFields>arguments[0]
    buffer = bytearray()
    if not fill_reader_fields(reader):
        return NULL
    reader._limit = limit
    reader._loop = loop
    reader._buffer = buffer
    reader._eof = False
    reader._waiter = None
    reader._exception = None
    reader._transport = None
    reader._paused = False
    return Py_NewRef(None)


# -- feeding -----------------------------------------------------------------------------------------------------------

cdef bint is_compiled_reader(object reader) noexcept:
    """Whether its class is StreamReader itself, changed or not."""
    return type(reader) is compiled_reader


cdef bint feeds_directly(object reader) except -1:
    """Whether feed_data(), of an object whose class is StreamReader itself, is the class's own and would find a
    bytearray to add to."""
    if is_plain_reader(<PyObject *>reader):
        return not (<StreamReaderFields>reader)._eof
    return (
        is_method(reader.feed_data, reader, compiled_feed_data)
        and is_method(reader._wakeup_waiter, reader, asyncio_wakeup_waiter)
        and not reader._eof
        and PyByteArray_CheckExact(reader._buffer)
    )


cdef object buffer_of(object reader):
    """`_buffer`, of any reader."""
    if is_unchanged(<PyObject *>reader, &reader_class) and has_buffer(reader):
        return (<StreamReaderFields>reader)._buffer
    return reader._buffer


cdef int data_added(object reader) except -1:
    """After data was added to the buffer of any reader: do what feed_data() does then."""
    wake(reader)
    if is_plain_reader(<PyObject *>reader) and not must_pause(<StreamReaderFields>reader):
        return 0
    # Also where the wake-up has run any code, or the class is asyncio's.
    transport = reader._transport
    if transport is not None and not reader._paused and exceeds(len(reader._buffer), reader._limit, 2):
        try:
            transport.pause_reading()
        except NotImplementedError:
            reader._transport = None
        else:
            reader._paused = True
    return 0


cdef inline bint must_pause(StreamReaderFields reader) except -1:
    return reader._transport is not None and not reader._paused and exceeds(size(reader), reader._limit, 2)


cdef int wake(object reader) except -1:
    """_wakeup_waiter()"""
    cdef object waiter
    if is_plain_reader(<PyObject *>reader):
        waiter = (<StreamReaderFields>reader)._waiter
        if waiter is None:
            return 0
        (<StreamReaderFields>reader)._waiter = None
    else:
        waiter = reader._waiter
        if waiter is None:
            return 0
        reader._waiter = None
    if is_our_future(waiter):
        if state_of(<Future>waiter) != CANCELLED:
            (<Future>waiter).finish(None)
    elif not waiter.cancelled():
        waiter.set_result(None)
    return 0


cdef bint feed_plain_reader(object reader, object data) except -1:
    """feed_data() with bytes. False: it does not apply."""
    if not is_plain_reader(<PyObject *>reader) or (<StreamReaderFields>reader)._eof or not PyBytes_CheckExact(data):
        return False
    if PyBytes_GET_SIZE(data):
        byte_array_append((<StreamReaderFields>reader)._buffer, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        data_added(reader)
    return True


cdef PyObject *feed_data(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 2 or keywords != NULL or not feed_plain_reader(<object>arguments[0], <object>arguments[1]):
        return NULL
    return Py_NewRef(None)


cdef PyObject *feed_eof(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_reader(arguments[0]):
        return NULL
    (<StreamReaderFields>arguments[0])._eof = True
    wake(<object>arguments[0])
    return Py_NewRef(None)


cdef PyObject *at_eof(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_reader(arguments[0]):
        return NULL
    return Py_NewRef((<StreamReaderFields>arguments[0])._eof and size(<StreamReaderFields>arguments[0]) == 0)


cdef PyObject *exception(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_reader(arguments[0]):
        return NULL
    return Py_NewRef((<StreamReaderFields>arguments[0])._exception)


# -- reading: the coroutines -------------------------------------------------------------------------------------------

cdef PyObject *read(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 2 or keywords != NULL or not is_unchanged(arguments[0], &reader_class):
        return NULL
    if not is_size(<object>arguments[1]):
        return NULL
    return new_coroutine(read_operation, <object>arguments[0], <object>arguments[1])


cdef PyObject *readexactly(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 2 or keywords != NULL or not is_unchanged(arguments[0], &reader_class):
        return NULL
    if not is_size(<object>arguments[1]):
        return NULL
    return new_coroutine(readexactly_operation, <object>arguments[0], <object>arguments[1])


cdef PyObject *readuntil(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not 1 <= count <= 2 or keywords != NULL or not is_unchanged(arguments[0], &reader_class):
        return NULL
    cdef object separator = b"\n" if count == 1 else <object>arguments[1]
    if not PyBytes_CheckExact(separator) or PyBytes_GET_SIZE(separator) == 0:
        return NULL
    return new_coroutine(readuntil_operation, <object>arguments[0], separator)


cdef bint is_size(object number) except -1:
    """Whether it is an int from 0 to the largest that fits in a C long."""
    cdef int overflow = 0
    return PyLong_CheckExact(number) and PyLong_AsLongAndOverflow(number, &overflow) >= 0 and not overflow


cdef enum:
    # readuntil() adds the number of bytes that are known to be without the beginning of a separator.
    WOKEN = 1
    READ_WOKEN = 2                  # before it is the `await` of a read() of everything


cdef object wait_for_data(Coroutine coroutine, object reader, int position):
    """_wait_for_data(), for a plain reader that no coroutine waits for, before the end of file."""
    cdef object waiter, loop
    if (<StreamReaderFields>reader)._paused:
        (<StreamReaderFields>reader)._paused = False
        reader._transport.resume_reading()
        loop = reader._loop
    else:
        loop = (<StreamReaderFields>reader)._loop
    waiter = loop.create_future()
    set_waiter(reader, waiter)
    coroutine.position = position
    return await_object(coroutine, waiter)


cdef int set_waiter(object reader, object waiter) except -1:
    if is_unchanged(<PyObject *>reader, &reader_class):
        set_waiter_field(reader, waiter)
    else:
        reader._waiter = waiter
    return 0


cdef bint is_waited_for(object reader) noexcept:
    return (<StreamReaderFields>reader)._waiter is not None


cdef bint may_begin(object reader) noexcept:
    """Whether a coroutine that has just started may use its short cut."""
    return is_plain_reader(<PyObject *>reader) and (<StreamReaderFields>reader)._exception is None


cdef object take(object reader, Py_ssize_t count):
    """The first `count` bytes of a plain reader."""
    cdef object data = byte_array_take_front((<StreamReaderFields>reader)._buffer, count)
    if (<StreamReaderFields>reader)._paused:
        reader._maybe_resume_transport()
    return data


cdef object leave_to_asyncio(Coroutine coroutine):
    """Go on with asyncio's own coroutine, which begins anew, as nothing was taken from the buffer."""
    cdef object function = <object>coroutine.operation.function, reader = coroutine.owner
    if coroutine.position != 0:
        reader = BegunReader(reader)
    return delegate(
        coroutine, function(reader) if coroutine.argument is None else function(reader, coroutine.argument)
    )


cdef object read_step(Coroutine coroutine, object outcome, object error):
    cdef object reader = coroutine.owner
    cdef Py_ssize_t wanted
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    wanted = coroutine.argument
    if coroutine.position == 0:
        if not may_begin(reader):
            return leave_to_asyncio(coroutine)
        if wanted == 0:
            return b""
        if size(<StreamReaderFields>reader) == 0 and not (<StreamReaderFields>reader)._eof:
            if is_waited_for(reader):
                return leave_to_asyncio(coroutine)
            return wait_for_data(coroutine, reader, READ_WOKEN)
    else:
        set_waiter(reader, None)
        if error is not None:
            raise_again(error)
        if not is_plain_reader(<PyObject *>reader):
            return take_from_any(reader, wanted)
    return take(reader, min(wanted, size(<StreamReaderFields>reader)))


cdef object take_from_any(object reader, Py_ssize_t count):
    """The end of read(), whatever the reader has become."""
    cdef object front, data
    if takes_bytes:
        data = reader._buffer.take_bytes(min(len(reader._buffer), count))
    else:
        front = slice(count)    # of any object, which may be no sequence
        data = bytes(reader._buffer[front])
        del reader._buffer[front]
    reader._maybe_resume_transport()
    return data


cdef object readexactly_step(Coroutine coroutine, object outcome, object error):
    cdef object reader = coroutine.owner
    cdef Py_ssize_t wanted
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    wanted = coroutine.argument
    if coroutine.position == 0:
        if not may_begin(reader):
            return leave_to_asyncio(coroutine)
        if wanted == 0:
            return b""
    else:
        set_waiter(reader, None)
        if error is not None:
            raise_again(error)
        if not is_plain_reader(<PyObject *>reader):
            return leave_to_asyncio(coroutine)
    if size(<StreamReaderFields>reader) >= wanted:
        return take(reader, wanted)
    if (<StreamReaderFields>reader)._eof:
        return leave_to_asyncio(coroutine)
    if is_waited_for(reader):
        return leave_to_asyncio(coroutine)
    return wait_for_data(coroutine, reader, WOKEN)


cdef object readuntil_step(Coroutine coroutine, object outcome, object error):
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position:
        set_waiter(coroutine.owner, None)
        if error is not None:
            raise_again(error)
    return up_to(coroutine, coroutine.argument)


cdef object up_to(Coroutine coroutine, object separator):
    """readuntil(), from its beginning or from where it was woken."""
    cdef object reader = coroutine.owner
    cdef Py_ssize_t length = PyBytes_GET_SIZE(separator), searched = 0, found
    if coroutine.position:
        searched = coroutine.position - WOKEN
        if not is_plain_reader(<PyObject *>reader):
            return leave_to_asyncio(coroutine)
    elif not may_begin(reader):
        return leave_to_asyncio(coroutine)
    if size(<StreamReaderFields>reader) - searched >= length:
        found = byte_array_find((<StreamReaderFields>reader)._buffer, PyBytes_AS_STRING(separator), length, searched)
        if found >= 0:
            if exceeds(found, (<StreamReaderFields>reader)._limit, 1):
                return leave_to_asyncio(coroutine)
            return take(reader, found + length)
        searched = size(<StreamReaderFields>reader) + 1 - length
        if exceeds(searched, (<StreamReaderFields>reader)._limit, 1):
            return leave_to_asyncio(coroutine)
    if (<StreamReaderFields>reader)._eof:
        if coroutine.operation == readuntil_operation:
            return leave_to_asyncio(coroutine)
        # readline() returns the rest without looking whether the transport should be resumed.
        return byte_array_take_front((<StreamReaderFields>reader)._buffer, size(<StreamReaderFields>reader))
    if is_waited_for(reader):
        return leave_to_asyncio(coroutine)
    return wait_for_data(coroutine, reader, <int>min(WOKEN + searched, INT_MAX))


cdef object readline_step(Coroutine coroutine, object outcome, object error):
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position:
        set_waiter(coroutine.owner, None)
        if error is not None:
            return line_after(coroutine.owner, error)
    return up_to(coroutine, b"\n")


cdef object line_after(object reader, object error):
    """What readline() does where readuntil() raises. A reader may be given any exception by set_exception()."""
    if exception_matches(error, IncompleteReadError):
        return error.partial
    try:
        raise_again(error)
    except LimitOverrunError:
        # While it is handled, so that it is the context of what follows.
        if reader._buffer.startswith(b"\n", error.consumed):
            del reader._buffer[:error.consumed + 1]
        else:
            reader._buffer.clear()
        reader._maybe_resume_transport()
        raise ValueError(error.args[0])


cdef object anext_step(Coroutine coroutine, object outcome, object error):
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    line = readline_step(coroutine, outcome, error)
    if coroutine.awaiting is None and line == b"":
        raise StopAsyncIteration
    return line


# -- the class ---------------------------------------------------------------------------------------------------------

cdef object AsyncioReader = streams.StreamReader
# Whether asyncio's own has the buffer's take_bytes() cut off what it returns, as since Python 3.15.
cdef bint takes_bytes = "take_bytes" in AsyncioReader.read.__code__.co_names
cdef object asyncio_wakeup_waiter = AsyncioReader._wakeup_waiter
cdef object compiled_feed_data = compiled_function(AsyncioReader.feed_data, feed_data)
cdef Operation read_operation = new_operation(read_step, AsyncioReader.read)
cdef Operation readexactly_operation = new_operation(readexactly_step, AsyncioReader.readexactly)
cdef Operation readuntil_operation = new_operation(readuntil_step, AsyncioReader.readuntil)
cdef Operation readline_operation = new_operation(readline_step, AsyncioReader.readline)
cdef Operation anext_operation = new_operation(anext_step, AsyncioReader.__anext__)

StreamReader = compiled_class(
    StreamReaderFields,
    AsyncioReader,
    __init__=compiled_function(AsyncioReader.__init__, init),
    feed_data=compiled_feed_data,
    feed_eof=compiled_function(AsyncioReader.feed_eof, feed_eof),
    at_eof=compiled_function(AsyncioReader.at_eof, at_eof),
    exception=compiled_function(AsyncioReader.exception, exception),
    read=compiled_function(AsyncioReader.read, read),
    readexactly=compiled_function(AsyncioReader.readexactly, readexactly),
    readuntil=compiled_function(AsyncioReader.readuntil, readuntil),
    readline=coroutine_method(AsyncioReader.readline, readline_operation, 1, &reader_class),
    __anext__=coroutine_method(AsyncioReader.__anext__, anext_operation, 1, &reader_class),
)
cdef object compiled_reader = StreamReader
plain_class_record(&reader_class, StreamReader)
