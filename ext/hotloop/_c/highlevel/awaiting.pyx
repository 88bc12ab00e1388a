"""What `await` does in a Python coroutine, for coroutines that have no frame: how it finds the iterator of what is
awaited, throws into it, and raises what comes out."""

from cpython.object cimport PyObject

from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.runtime.send_slots cimport PYGEN_ERROR, PYGEN_NEXT, PYGEN_RETURN, PySendResult
from hotloop._c.tasks.thrown_exceptions cimport exception_matches

import inspect

from hotloop._asyncio.coroutine_frames import refuse_to_await

cdef extern from *:
    """
    #include "highlevel/await_slots.h"
    #include "runtime/error_indicator.h"
    """
    PyObject *call_await_method(object awaitable) except? NULL
    int set_error_again(object) except -1

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object)
    bint PyGen_CheckExact(object)
    bint PyIter_Check(object)

cdef int CO_ITERABLE_COROUTINE = inspect.CO_ITERABLE_COROUTINE


cdef object awaitable_iterator(object awaitable):
    """The iterator that `await` resumes, as the interpreter finds it."""
    cdef PyObject *found
    cdef object iterator = None
    if PyCoro_CheckExact(awaitable):
        if awaitable.cr_await is not None:
            raise RuntimeError("coroutine is being awaited already")
        return awaitable
    if is_generator_coroutine(awaitable):
        return awaitable
    found = call_await_method(awaitable)
    if found != NULL:
        iterator = steal(found)
        if PyIter_Check(iterator) and not is_generator_coroutine(iterator):
            return iterator
    refuse_to_await(awaitable, iterator)


cdef bint is_generator_coroutine(object generator) except -1:
    """Whether types.coroutine() has made it a coroutine."""
    return PyGen_CheckExact(generator) and generator.gi_code.co_flags & CO_ITERABLE_COROUTINE


cdef PySendResult throw_into(object iterator, object error, PyObject **yielded) except PYGEN_ERROR:
    """coroutine.throw() for what the coroutine awaits."""
    cdef object method
    if exception_matches(error, GeneratorExit):
        method = getattr(iterator, "close", None)
        if method is not None:
            method()
        raise_again(error)
    method = getattr(iterator, "throw", None)
    if method is None:
        raise_again(error)
    try:
        yielded[0] = Py_NewRef(method(error))
    except StopIteration as stopped:
        yielded[0] = Py_NewRef(stopped.value)
        status = PYGEN_RETURN
    else:
        status = PYGEN_NEXT
    return status


cdef int raise_again(object error) except -1:
    """Raise an exception that has been raised before, with the context and traceback that it has."""
    return set_error_again(error)


cdef object without_stop_iteration(object error, object text):
    """The exception to raise instead, if it is a StopIteration: a coroutine or generator that raises one has failed."""
    cdef object replacement
    if not exception_matches(error, StopIteration):
        return error
    replacement = RuntimeError(text)
    replacement.__cause__ = replacement.__context__ = error
    return replacement
