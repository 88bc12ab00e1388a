from cpython.object cimport PyObject

cdef object new_iterator(object coroutine, PyObject *unused)
