# All of it is in a .pxd, so that every module compiles it inline.

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    PyObject *Py_NewRef(object) noexcept


cdef inline object steal(PyObject *item):
    """The object of a reference that the caller owns, and gives up."""
    cdef object owned = <object>item
    Py_DECREF(owned)
    return owned
