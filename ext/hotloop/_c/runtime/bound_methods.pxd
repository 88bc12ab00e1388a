"""Tells whether a call would reach asyncio's own method, so that a short cut may bypass it. All of it is in a .pxd, so
that every module compiles it inline."""

from cpython.method cimport PyMethod_Check, PyMethod_GET_FUNCTION, PyMethod_GET_SELF
from cpython.object cimport PyObject

cdef extern from *:
    """
    /* is_method() for a method of a compiled class. */
    static inline int is_compiled_method(PyObject *method, PyObject *owner, PyObject *descriptor)
    {
        return PyCFunction_Check(method) && PyCFunction_GET_SELF(method) == owner
               && Py_IS_TYPE(descriptor, &PyMethodDescr_Type)
               && PyCFunction_GET_FUNCTION(method) == ((PyMethodDescrObject *)descriptor)->d_method->ml_meth;
    }
    """
    bint is_compiled_method(object method, object owner, object descriptor) noexcept


cdef inline bint is_method(object method, object owner, object function) noexcept:
    """Whether `method`, an attribute of `owner`, is `function` bound to `owner`. `function` is what the class has under
    that name. False where a subclass overrides the method or the object replaces it."""
    if not PyMethod_Check(method):
        return is_compiled_method(method, owner, function)
    return PyMethod_GET_FUNCTION(method) == <PyObject *>function and PyMethod_GET_SELF(method) == <PyObject *>owner
