"""Whether an object is of one exact class, and that class is as it was made: a short cut may then do what the class's
methods do, unless an attribute of the object itself replaces one. A class that was patched and restored is as it was
made again.

replaced_names() answers for subclasses and for objects with attributes of their own, too: it tells which of the class's
names they replace. A short cut may then do the call if it relies on none of them.

All of it is in a .pxd, so that every module compiles it inline."""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    typedef struct plain_class {
        PyTypeObject *type;   /* NULL: not known yet; owned */
        unsigned int version; /* with which it is as it was made */
        unsigned int other;   /* with which it is not */
        PyObject *contents;   /* its bases, itself first, each with a copy of its dictionary; owned */
        PyObject *names;      /* of its methods and fields, each with its bit; owned; see replaced_names() */
        unsigned long long name_hashes[4]; /* a Bloom filter of `names` */
        struct plain_class *variant; /* a subclass that is compiled, too; NULL: none. It may have another as its own */
        unsigned int mark;           /* of a variant: a bit that no name has, for its objects and its subclasses' */
        struct {
            PyTypeObject *type;    /* a subclass; borrowed, and perhaps deleted: no other has its version */
            unsigned int version;  /* 0: the entry is empty */
            unsigned int replaced; /* the bits of the names that it replaces, with the mark of its variant */
        } subclasses[16];
    } plain_class;

    /* The version of the class; the interpreter assigns one at the next lookup. 0: none is to be had. */
    static inline unsigned int plain_class_version(const plain_class *known)
    {
        PyObject *found = PyObject_GetAttrString((PyObject *)known->type, "__init__");

        Py_XDECREF(found);
        PyErr_Clear();
        return __atomic_load_n(&known->type->tp_version_tag, __ATOMIC_RELAXED);
    }

    /* How many of the notes a class has that copy, pickle and reading its annotations add to it. */
    static int plain_class_count_notes(PyObject *dict)
    {
        return (PyDict_GetItemString(dict, "__slotnames__") != NULL)
               + (PyDict_GetItemString(dict, "__annotations__") != NULL)
               + (PyDict_GetItemString(dict, "__annotate_func__") != NULL)
               + (PyDict_GetItemString(dict, "__annotations_cache__") != NULL);
    }

    /* Whether `dict` has the keys and values of `copy`, the same objects, and nothing else but notes. */
    static int plain_class_same_contents(PyObject *dict, PyObject *copy)
    {
        PyObject *key, *value;
        Py_ssize_t position = 0;

        if (PyDict_GET_SIZE(dict) - plain_class_count_notes(dict)
            != PyDict_GET_SIZE(copy) - plain_class_count_notes(copy))
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

    /* The bit of each name that is not among the `hooks`; every short cut relies on them all. */
    #define OTHER_NAMES 0x80000000U

    #define PLAIN_CLASS_HASH_BIT(hash) (1ULL << ((hash) & 63))
    #define PLAIN_CLASS_HASH_WORD(known, hash) (known)->name_hashes[((hash) >> 6) & 3]

    /* Methods with such names are for the interpreter: no other method calls them, and fields have no such names. */
    static inline int plain_class_is_special_name(PyObject *name)
    {
        Py_ssize_t size = PyUnicode_GET_LENGTH(name);

        return size > 4 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, 1) == '_'
               && PyUnicode_READ_CHAR(name, size - 1) == '_' && PyUnicode_READ_CHAR(name, size - 2) == '_';
    }

    static int plain_class_add_name(plain_class *known, PyObject *name, unsigned int bit)
    {
        Py_hash_t hash = PyObject_Hash(name);
        PyObject *value = PyLong_FromUnsignedLong(bit);
        int failed = value == NULL || PyDict_SetItem(known->names, name, value) < 0;

        Py_XDECREF(value);
        PLAIN_CLASS_HASH_WORD(known, hash) |= PLAIN_CLASS_HASH_BIT(hash);
        return failed ? -1 : 0;
    }

    /* plain_class_record() for a class whose subclasses have short cuts. The name at index i of the tuple `hooks` gets
     * the bit 1 << i. */
    static int plain_class_record_names(plain_class *known, PyObject *type, PyObject *hooks)
    {
        PyObject *bases = ((PyTypeObject *)type)->tp_mro, *name, *value;
        Py_ssize_t index;
        int failed = 0;

        known->names = PyDict_New();
        if (known->names == NULL)
            return -1;
        for (index = 0; !failed && index < PyTuple_GET_SIZE(bases); index++) {
            PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(bases, index);
            Py_ssize_t position = 0;

            while (!failed && base != &PyBaseObject_Type && PyDict_Next(base->tp_dict, &position, &name, &value))
                if (!plain_class_is_special_name(name))
                    failed = plain_class_add_name(known, name, OTHER_NAMES);
        }
        for (index = 0; !failed && index < PyTuple_GET_SIZE(hooks); index++)
            failed = plain_class_add_name(known, PyTuple_GET_ITEM(hooks, index), 1U << index);
        return failed ? -1 : plain_class_record(known, type);
    }

    /* The bits of the names that are keys of `dict`. */
    static unsigned int replaced_in_dict(const plain_class *known, PyObject *dict)
    {
        PyObject *name, *value, *bit;
        Py_ssize_t position = 0;
        unsigned int replaced = 0;

        while (PyDict_Next(dict, &position, &name, &value)) {
            Py_hash_t hash;

            if (!PyUnicode_CheckExact(name))
                return ~0U;
            hash = ((PyASCIIObject *)name)->hash;
            if (hash == -1)
                hash = PyObject_Hash(name);
            if (!(PLAIN_CLASS_HASH_WORD(known, hash) & PLAIN_CLASS_HASH_BIT(hash)))
                continue;
            bit = PyDict_GetItemWithError(known->names, name);
            if (bit != NULL)
                replaced |= (unsigned int)PyLong_AsUnsignedLong(bit);
        }
        return replaced;
    }

    /* The version of any class, which is assigned without running its metaclass's code; 0: none is to be had. */
    static inline unsigned int plain_class_assigned_version(PyTypeObject *type)
    {
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyUnstable_Type_AssignVersionTag(type))
            return 0;
    #else
        static PyObject *name = NULL;

        if (name == NULL)
            name = PyUnicode_InternFromString("__init__");
        if (name == NULL)
            PyErr_Clear();
        else
            (void)_PyType_Lookup(type, name);
    #endif
        return __atomic_load_n(&type->tp_version_tag, __ATOMIC_RELAXED);
    }

    /* The bits of the names that a subclass replaces, or one of its other bases; all bits if it may be unlike the class
     * in any other way: what super() finds in the class's own methods included. */
    static unsigned int plain_class_compare_with(plain_class *known, PyTypeObject *type)
    {
        PyObject *bases = type->tp_mro, *own_bases = known->type->tp_mro;
        Py_ssize_t index, own_index = 0, last = PyTuple_GET_SIZE(own_bases) - 1; /* the last one is `object` */
        unsigned int replaced = 0;

        if (!PyType_IsSubtype(type, known->type) || !class_is_unchanged(known)
            || type->tp_getattro != known->type->tp_getattro || type->tp_setattro != known->type->tp_setattro
            || type->tp_dictoffset != known->type->tp_dictoffset)
            return ~0U;
        for (index = 0; index < PyTuple_GET_SIZE(bases); index++) {
            PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(bases, index);

            if (own_index <= last && (PyObject *)base == PyTuple_GET_ITEM(own_bases, own_index))
                own_index++;
            else if ((own_index == 0 || own_index == last) && PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE))
                replaced |= replaced_in_dict(known, base->tp_dict);
            else
                return ~0U;
        }
        return own_index > last ? replaced : ~0U;
    }

    /* The same for the class or the variant that `type` derives from, with the variant's mark. */
    static unsigned int plain_class_compare(plain_class *known, PyTypeObject *type)
    {
        plain_class *variant;

        for (variant = known->variant; variant != NULL; variant = variant->variant)
            if (variant->type != NULL && PyType_IsSubtype(type, variant->type))
                return variant->mark | plain_class_compare_with(variant, type);
        return plain_class_compare_with(known, type);
    }

    static unsigned int plain_class_find_replaced(plain_class *known, PyTypeObject *type, size_t index)
    {
        unsigned int version = plain_class_assigned_version(type);

        if (version == 0)
            return ~0U;
        known->subclasses[index].replaced = plain_class_compare(known, type);
        known->subclasses[index].type = type;
        known->subclasses[index].version = version;
        return known->subclasses[index].replaced;
    }

    static inline unsigned int replaced_in_subclass(plain_class *known, PyTypeObject *type)
    {
        size_t index = ((size_t)type >> 4 ^ (size_t)type >> 9) & 15;
        unsigned int version = __atomic_load_n(&type->tp_version_tag, __ATOMIC_RELAXED);

        if (known->subclasses[index].type == type && known->subclasses[index].version == version && version != 0)
            return known->subclasses[index].replaced;
        return plain_class_find_replaced(known, type, index);
    }

    /* The bits of the names that the class of the object replaces, and the mark of its variant; all bits if that is no
     * subclass. */
    static inline unsigned int names_replaced_by_class(PyObject *object, const plain_class *known)
    {
        if (Py_TYPE(object) != known->type)
            return replaced_in_subclass((plain_class *)known, Py_TYPE(object));
        return class_is_unchanged(known) ? 0 : ~0U;
    }

    /* Whether the object is of the class, or of a subclass that has short cuts and replaces none of the names with
     * these bits. A class that plain_class_record() has recorded has no short cuts for subclasses. */
    static inline int class_keeps_names(PyObject *object, const plain_class *known, unsigned int names)
    {
        if (Py_TYPE(object) == known->type)
            return class_is_unchanged(known);
        return known->names != NULL
               && !(replaced_in_subclass((plain_class *)known, Py_TYPE(object)) & (OTHER_NAMES | names));
    }

    /* The bits of the names that the class of the object replaces, or the object itself by an attribute. */
    static inline unsigned int replaced_names(PyObject *object, const plain_class *known)
    {
        unsigned int replaced = names_replaced_by_class(object, known);
        PyObject *dict;

        if (replaced & OTHER_NAMES)
            return replaced;
        dict = *(PyObject **)((char *)object + known->type->tp_dictoffset);
        return dict == NULL ? replaced : replaced | replaced_in_dict(known, dict);
    }

    /* object.name(), or object.name(argument) if that is not NULL; the method is most likely a function of a subclass.
     * For any object of the class or a subclass. */
    static PyObject *call_replaced(PyObject *object, const plain_class *known, PyObject *name, PyObject *argument)
    {
        PyObject *arguments[3] = {NULL, object, argument}, *function = NULL, *result;
        size_t count = (argument == NULL ? 1 : 2) | PY_VECTORCALL_ARGUMENTS_OFFSET;

        if (*(PyObject **)((char *)object + known->type->tp_dictoffset) == NULL)
            function = _PyType_Lookup(Py_TYPE(object), name);
        if (function == NULL || !PyFunction_Check(function))
            return PyObject_VectorcallMethod(name, arguments + 1, count, NULL);
        Py_INCREF(function);
        result = PyObject_Vectorcall(function, arguments + 1, count, NULL);
        Py_DECREF(function);
        return result;
    }
    """
    ctypedef struct plain_class:
        PyTypeObject *type
        plain_class *variant
        unsigned int mark
    const unsigned int OTHER_NAMES
    int plain_class_record_names(plain_class *known, object type, tuple hooks) except -1
    unsigned int names_replaced_by_class(PyObject *object, const plain_class *known) noexcept
    bint class_keeps_names(PyObject *object, const plain_class *known, unsigned int names) noexcept
    unsigned int replaced_names(PyObject *object, const plain_class *known) noexcept
    object call_replaced(PyObject *object, const plain_class *known, object name, PyObject *argument)
    bint class_is_unchanged(const plain_class *known) noexcept
    object plain_class_new(const plain_class *known)
    bint is_unchanged(PyObject *object, const plain_class *known) noexcept
    int plain_class_record(plain_class *known, object type) except -1
