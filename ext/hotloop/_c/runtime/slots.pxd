"""slots.h, and the type of a tp_traverse."""

from cpython.object cimport PyObject, visitproc

cdef extern from "runtime/slots.h":
    int slots_visit(PyObject **slots, Py_ssize_t size, visitproc, void *) noexcept

# Without `noexcept`, Cython would take a result of -1, which only stops the collector, for an exception.
ctypedef int (*traverse_function)(PyObject *, visitproc, void *) noexcept
