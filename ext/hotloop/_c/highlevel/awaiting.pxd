from cpython.object cimport PyObject

from hotloop._c.runtime.send_slots cimport PYGEN_ERROR, PySendResult


cdef object awaitable_iterator(object awaitable)
cdef bint is_generator_coroutine(object generator) except -1
cdef PySendResult throw_into(object iterator, object error, PyObject **yielded) except PYGEN_ERROR
cdef int raise_again(object error) except -1
cdef object without_stop_iteration(object error, object text)
