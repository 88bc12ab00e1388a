"""Whether an object is of one exact class, and that class is as it was made: a short cut may then do what the class's
methods do, unless an attribute of the object itself replaces one. All of it is in a .pxd, so that every module compiles
it inline."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef struct {
        PyTypeObject *type; /* NULL: not known yet; owned */
        unsigned int version;
    } plain_class;

    /* True if neither the class nor one of its bases has changed since plain_class_record(). */
    static inline int class_is_unchanged(const plain_class *known)
    {
        return __atomic_load_n(&known->type->tp_version_tag, __ATOMIC_RELAXED) == known->version;
    }

    /* The same, and the object is of the class. */
    static inline int is_unchanged(PyObject *object, const plain_class *known)
    {
        return Py_TYPE(object) == known->type && class_is_unchanged(known);
    }

    /* An object of the class for which __init__() was not called. */
    static inline PyObject *plain_class_new(const plain_class *known)
    {
        PyObject *none = PyTuple_New(0); /* the singleton */
        PyObject *made = known->type->tp_new(known->type, none, NULL);

        Py_DECREF(none);
        return made;
    }

    /* To be called when the class is complete. The interpreter assigns a version at the first lookup. */
    static inline void plain_class_record(plain_class *known, PyObject *type)
    {
        PyObject *found = PyObject_GetAttrString(type, "__init__");

        Py_XDECREF(found);
        PyErr_Clear();
        known->type = (PyTypeObject *)Py_NewRef(type);
        known->version = known->type->tp_version_tag;
        if (known->version == 0)
            known->version = 0xFFFFFFFF; /* none was to be had, and none is like this one */
    }
    """
    ctypedef struct plain_class:
        pass
    bint class_is_unchanged(const plain_class *known) noexcept
    object plain_class_new(const plain_class *known)
    bint is_unchanged(PyObject *object, const plain_class *known) noexcept
    void plain_class_record(plain_class *known, object type)
