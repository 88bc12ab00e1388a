"""The object that a weak reference refers to. All of it is in a .pxd, so that every module compiles it inline."""

cdef extern from *:
    """
    static inline PyObject *referent_of(PyObject *reference)
    {
        PyObject *object = NULL;
    #if PY_VERSION_HEX >= 0x030D0000
        if (PyWeakref_GetRef(reference, &object) == 0)
            object = Py_NewRef(Py_None);
    #else
        object = PyWeakref_GetObject(reference);
        Py_XINCREF(object);
    #endif
        return object;
    }
    """
    object referent_of(object reference)    # None: it is gone

cdef extern from "Python.h":
    bint PyWeakref_CheckRefExact(object)
