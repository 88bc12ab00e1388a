from cpython.object cimport PyObject

# Does the call, or returns NULL without an exception where it does not apply: then asyncio's own function is called.
ctypedef PyObject *(*short_cut)(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL

cdef object compiled_function(object function, short_cut applied)
