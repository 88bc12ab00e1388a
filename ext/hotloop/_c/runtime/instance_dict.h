/* An instance dictionary that does not exist until an attribute is set.
 *
 * Cython's own `cdef dict __dict__` makes a dictionary with every object. Here the class declares `cdef object
 * attributes` instead, its __cinit__ clears that slot, and the type is told that its dictionary is there. This saves
 * the dictionary, and the interpreter a lookup in it: calling a method of an object whose dictionary is absent takes
 * its fastest path. The garbage collector sees the slot as it sees any other.
 *
 * A module uses this for one class: it defines INSTANCE_DICT_OWNER as the class's C structure, which Cython declares
 * later.
 */
#ifndef HOTLOOP_RUNTIME_INSTANCE_DICT_H
#define HOTLOOP_RUNTIME_INSTANCE_DICT_H

#include <Python.h>

/* Begin or end without a dictionary. Cython has filled the slot of a new object with None. */
#define instance_dict_clear(object) Py_CLEAR(((INSTANCE_DICT_OWNER *)(object))->attributes)

#define instance_dict_is_absent(object) (((INSTANCE_DICT_OWNER *)(object))->attributes == NULL)

static inquiry instance_dict_usual_clear = NULL; /* Cython's tp_clear */
static Py_ssize_t instance_dict_offset = 0;

/* The tp_clear. Cython's leaves None in the slot, which the interpreter would take for a dictionary: code that runs
 * while the garbage collector clears a cycle may still find the object. */
static int instance_dict_clear_object(PyObject *object)
{
    PyObject **slot = (PyObject **)((char *)object + instance_dict_offset);
    int failed;

    Py_CLEAR(*slot);
    failed = instance_dict_usual_clear(object);
    Py_CLEAR(*slot);
    return failed;
}

static inline void instance_dict_install_at(PyTypeObject *type, Py_ssize_t offset)
{
    if (instance_dict_usual_clear == NULL)
        instance_dict_usual_clear = type->tp_clear;
    /* A subclass with a tp_clear of its own calls this one from there. */
    if (type->tp_clear != NULL && type->tp_clear == instance_dict_usual_clear)
        type->tp_clear = instance_dict_clear_object;
    instance_dict_offset = offset;
    type->tp_dictoffset = offset;
    PyType_Modified(type);
}

/* To be called before the first instance exists. Subclasses that are made later inherit it. */
#define instance_dict_install(type) \
    instance_dict_install_at(type, (Py_ssize_t)offsetof(INSTANCE_DICT_OWNER, attributes))

static inline PyObject *instance_dict_get(PyObject *object) { return PyObject_GenericGetDict(object, NULL); }

static inline int instance_dict_set(PyObject *object, PyObject *dict)
{
    return PyObject_GenericSetDict(object, dict, NULL);
}

#endif
