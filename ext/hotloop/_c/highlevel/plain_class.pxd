"""Whether an object is of one exact class, and that class is as it was made: a short cut may then do what the class's
methods do, unless an attribute of the object itself replaces one. A class that was patched and restored is as it was
made again. All of it is in a .pxd, so that every module compiles it inline."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef struct {
        PyTypeObject *type;   /* NULL: not known yet; owned */
        unsigned int version; /* with which it is as it was made */
        unsigned int other;   /* with which it is not */
        PyObject *contents;   /* its bases, itself first, each with a copy of its dictionary; owned */
    } plain_class;

    /* The version of the class; the interpreter assigns one at the next lookup. 0: none is to be had. */
    static inline unsigned int plain_class_version(const plain_class *known)
    {
        PyObject *found = PyObject_GetAttrString((PyObject *)known->type, "__init__");

        Py_XDECREF(found);
        PyErr_Clear();
        return __atomic_load_n(&known->type->tp_version_tag, __ATOMIC_RELAXED);
    }

    /* Whether `dict` has the keys and values of `copy`, the same objects. */
    static int plain_class_same_contents(PyObject *dict, PyObject *copy)
    {
        PyObject *key, *value;
        Py_ssize_t position = 0;

        if (PyDict_GET_SIZE(dict) != PyDict_GET_SIZE(copy))
            return 0;
        while (PyDict_Next(copy, &position, &key, &value))
            if (PyDict_GetItemWithError(dict, key) != value)
                return 0;
        return 1;
    }

    /* The class or one of its bases has another version: whether it was only patched and restored. Only a class that
     * was made by Python code can be patched. */
    static int plain_class_is_restored(plain_class *known)
    {
        PyObject *bases = known->type->tp_mro, *base;
        unsigned int version = plain_class_version(known);
        Py_ssize_t index;

        if (version == known->version)
            return 1;
        if (version == 0 || version == known->other || known->contents == NULL)
            return 0;
        known->other = version;
        if (PyTuple_GET_SIZE(bases) != PyTuple_GET_SIZE(known->contents))
            return 0;
        for (index = 0; index < PyTuple_GET_SIZE(bases); index++) {
            PyObject *made = PyTuple_GET_ITEM(known->contents, index);

            base = PyTuple_GET_ITEM(bases, index);
            if (base != PyTuple_GET_ITEM(made, 0))
                return 0;
            if (PyType_HasFeature((PyTypeObject *)base, Py_TPFLAGS_HEAPTYPE)
                && !plain_class_same_contents(((PyTypeObject *)base)->tp_dict, PyTuple_GET_ITEM(made, 1)))
                return 0;
        }
        known->version = version;
        known->other = 0;
        return 1;
    }

    /* True if the class and its bases are as they were at plain_class_record(). */
    static inline int class_is_unchanged(const plain_class *known)
    {
        return __atomic_load_n(&known->type->tp_version_tag, __ATOMIC_RELAXED) == known->version
               || plain_class_is_restored((plain_class *)known);
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

    /* What plain_class_is_restored() compares: NULL and an exception if there is no memory. */
    static PyObject *plain_class_contents(PyObject *bases)
    {
        PyObject *contents = PyTuple_New(PyTuple_GET_SIZE(bases));
        Py_ssize_t index;

        for (index = 0; contents != NULL && index < PyTuple_GET_SIZE(bases); index++) {
            PyObject *base = PyTuple_GET_ITEM(bases, index), *copy = NULL, *made = NULL;

            copy = PyType_HasFeature((PyTypeObject *)base, Py_TPFLAGS_HEAPTYPE)
                ? PyDict_Copy(((PyTypeObject *)base)->tp_dict) : Py_NewRef(Py_None);
            if (copy != NULL)
                made = PyTuple_Pack(2, base, copy);
            Py_XDECREF(copy);
            if (made == NULL)
                Py_CLEAR(contents);
            else
                PyTuple_SET_ITEM(contents, index, made);
        }
        return contents;
    }

    /* To be called when the class is complete. */
    static inline int plain_class_record(plain_class *known, PyObject *type)
    {
        known->type = (PyTypeObject *)Py_NewRef(type);
        known->version = plain_class_version(known);
        if (known->version == 0)
            known->version = 0xFFFFFFFF; /* none was to be had, and none is like this one */
        known->contents = plain_class_contents(known->type->tp_mro);
        return known->contents == NULL ? -1 : 0;
    }
    """
    ctypedef struct plain_class:
        pass
    bint class_is_unchanged(const plain_class *known) noexcept
    object plain_class_new(const plain_class *known)
    bint is_unchanged(PyObject *object, const plain_class *known) noexcept
    int plain_class_record(plain_class *known, object type) except -1
