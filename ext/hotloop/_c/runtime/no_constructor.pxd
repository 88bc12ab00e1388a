"""no_constructor.h."""

from cpython.object cimport PyTypeObject


cdef extern from "runtime/no_constructor.h":
    int remove_constructor(PyTypeObject *) except -1
