# In a header alone, so that every module has it inline.

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF


cdef inline object steal(PyObject *item):
    """The object of a reference that somebody has handed over."""
    cdef object owned = <object>item
    Py_DECREF(owned)
    return owned
