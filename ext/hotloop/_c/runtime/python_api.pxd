"""Parts of CPython's C API that several modules use, where Cython has no declaration or one with other types."""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)
    bint PyLong_CheckExact(object)
    PyObject *bytes_of_size "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL
    # Fails only if the context is entered already. The caller looks at the result: the error indicator is set.
    int try_to_enter "PyContext_Enter" (PyObject *context) noexcept
    int PySys_Audit(const char *event, const char *format, ...) except -1
