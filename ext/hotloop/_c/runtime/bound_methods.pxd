"""For short cuts past a method of asyncio's: whether a call would reach it. In a header alone, so that every module has
it inline."""

from cpython.method cimport PyMethod_Check, PyMethod_GET_FUNCTION, PyMethod_GET_SELF
from cpython.object cimport PyObject

cdef extern from *:
    """
    /* The same for a method of a compiled class. */
    static inline int is_compiled_method(PyObject *method, PyObject *owner, PyObject *descriptor)
    {
        return PyCFunction_Check(method) && PyCFunction_GET_SELF(method) == owner
               && Py_IS_TYPE(descriptor, &PyMethodDescr_Type)
               && PyCFunction_GET_FUNCTION(method) == ((PyMethodDescrObject *)descriptor)->d_method->ml_meth;
    }
    """
    bint is_compiled_method(object method, object owner, object descriptor) noexcept


cdef inline bint is_method(object method, object owner, object function) noexcept:
    """Whether an attribute is this function, as found in its class, bound to its owner: neither overridden nor replaced
    on the object."""
    if not PyMethod_Check(method):
        return is_compiled_method(method, owner, function)
    return PyMethod_GET_FUNCTION(method) == <PyObject *>function and PyMethod_GET_SELF(method) == <PyObject *>owner
