from cpython.object cimport PyObject

from hotloop._c.runtime.references cimport steal


# The real type and contents of an exception: a program's class may override what Python code would see.
cdef extern from "Python.h":
    bint is_exception "PyExceptionInstance_Check" (object) noexcept
    bint is_exception_class "PyExceptionClass_Check" (object) noexcept
    bint exception_matches "PyErr_GivenExceptionMatches" (object error, object kind) noexcept
    int set_traceback "PyException_SetTraceback" (object error, object traceback) except -1
    PyObject *PyException_GetTraceback(object error) noexcept


cdef inline object traceback_of(object error):
    """The traceback, or None."""
    cdef PyObject *found = PyException_GetTraceback(error)
    return None if found == NULL else steal(found)


cdef bint refuses_before_it_looks

cdef int warn_of_signature() except -1
cdef object exception_to_throw(object kind, object value, object traceback)
cdef object replace_stop_iteration(object error)
