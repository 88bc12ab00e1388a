"""Classes whose objects this package alone makes: a program can reach them by type(), and an object that was not filled
would crash."""

from cpython.object cimport PyTypeObject


cdef extern from *:
    """
    static PyObject *refuse_construction(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
    {
        (void)arguments, (void)keywords;
        return PyErr_Format(PyExc_TypeError, "cannot create '%s' instances", type->tp_name);
    }

    /* Cython's own `Class.__new__(Class)`, in the module of the class, does not use these slots. */
    static inline void remove_constructor(PyTypeObject *type)
    {
        type->tp_new = refuse_construction;
        type->tp_vectorcall = NULL;
    }
    """
    # To be called at the end of the class's module. No class of another module may derive from the class.
    void remove_constructor(PyTypeObject *) noexcept
