from cpython.object cimport PyObject


cdef class StreamReaderFields:
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _limit
    cdef object _loop
    cdef object _buffer
    cdef object _eof
    cdef object _waiter             # a future; None: no coroutine waits
    cdef object _exception          # None: none was set
    cdef object _transport          # None: there is none, or it cannot be paused
    cdef object _paused             # True: this reader has paused the transport


cdef bint is_plain_reader(PyObject *reader) noexcept
cdef bint is_compiled_reader(object reader) noexcept
cdef bint feeds_directly(object reader) except -1
cdef object buffer_of(object reader)
cdef int data_added(object reader) except -1
cdef bint feed_plain_reader(object reader, object data) except -1
