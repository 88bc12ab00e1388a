from cpython.object cimport PyObject


cdef class StreamReaderProtocolFields:
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop
    cdef object _paused             # True: writing is paused
    cdef object _drain_waiters      # a deque of futures
    cdef object _connection_lost
    cdef object _stream_reader_wr   # a weak reference to the StreamReader, or None
    # The others are for asyncio's own methods.
    cdef object _reject_connection
    cdef object _task
    cdef object _transport
    cdef object _client_connected_cb
    cdef object _over_ssl
    cdef object _source_traceback
    # Not always there.
    cdef object _closed             # a future
    cdef object _strong_reader
    cdef object _stream_writer


cdef bint is_plain_protocol(PyObject *protocol) noexcept
cdef bint is_compiled_protocol(object protocol) noexcept
cdef bint receives_directly(object protocol) except -1
cdef object reader_reference(object protocol)
