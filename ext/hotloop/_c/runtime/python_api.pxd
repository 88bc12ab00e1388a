"""Parts of CPython's C API that several modules use, where Cython has no declaration or one with other types."""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)
    bint PyLong_CheckExact(object)
    PyObject *bytes_of_size "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL
    int PySys_Audit(const char *event, const char *format, ...) except -1
