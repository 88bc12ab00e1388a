"""recycling.h, for a module whose C code has included it: with the number of objects that it keeps, if it keeps any."""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    # Raw memory.
    void free_memory_install(PyTypeObject *)

    # Whole objects, released when their last reference goes.
    void free_objects_install(PyTypeObject *, bint (*is_spent)(PyObject *) noexcept, void (*empty)(PyObject *) noexcept)
    PyObject *free_objects_acquire()

    # Whole objects, which their owner releases.
    ctypedef struct free_list:
        pass
    PyObject *free_list_acquire(free_list *)
    bint free_list_accepts(const free_list *, PyObject *)
    void free_list_release(free_list *, PyObject *)
    bint is_unshared_native(PyObject *)

    # Memory that the garbage collector does not count.
    enum:
        COLLECTOR_WORDS
    void uncounted_install(PyTypeObject *)

    void finalizer_skip(object) noexcept
