"""A short cut for calls of a class. All of it is in a .pxd, so that every module compiles it inline.

Without one, a call makes a tuple of its arguments, and looks up `__init__`, which then checks the same things again.
"""

from cpython.object cimport PyObject

from hotloop._c.highlevel.plain_class cimport plain_class

cdef extern from *:
    """
    /* Call the class as the interpreter does: with __new__() and __init__(). */
    static PyObject *construct_in_general(PyObject *cls, PyObject *const *arguments, size_t count, PyObject *names)
    {
        Py_ssize_t positional = PyVectorcall_NARGS(count), index;
        PyObject *tuple = PyTuple_New(positional), *keywords = NULL, *result = NULL;
        int failed = tuple == NULL;

        for (index = 0; !failed && index < positional; index++)
            PyTuple_SET_ITEM(tuple, index, Py_NewRef(arguments[index]));
        if (!failed && names != NULL) {
            keywords = PyDict_New();
            failed = keywords == NULL;
            for (index = 0; !failed && index < PyTuple_GET_SIZE(names); index++)
                failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, index), arguments[positional + index]) < 0;
        }
        if (!failed)
            result = PyType_Type.tp_call(cls, tuple, keywords);
        Py_XDECREF(tuple);
        Py_XDECREF(keywords);
        return result;
    }

    #define constructor_install(type, function) ((void)(((PyTypeObject *)(type))->tp_vectorcall = (function)))

    /* Whether the class, and its bases, are as they were at plain_class_record(). */
    static inline int is_unchanged_class(PyObject *cls, const plain_class *known)
    {
        return cls == (PyObject *)known->type && class_is_unchanged(known);
    }
    """
    ctypedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *) noexcept
    Py_ssize_t PyVectorcall_NARGS(size_t) noexcept
    PyObject *construct_in_general(PyObject *cls, PyObject *const *arguments, size_t count, PyObject *names) noexcept
    # Subclasses do not inherit it.
    void constructor_install(object type, vectorcallfunc function) noexcept
    bint is_unchanged_class(PyObject *cls, const plain_class *known) noexcept
