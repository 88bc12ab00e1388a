/* An instance dictionary that does not exist until an attribute is set.
 *
 * Cython's own `cdef dict __dict__` makes a dictionary with every object. Here the class declares `cdef bytes
 * attributes` instead, its __cinit__ clears that slot, and the type is told that its dictionary is there. This saves
 * the dictionary, and the interpreter a lookup in it: calling a method of an object whose dictionary is absent takes
 * its fastest path.
 *
 * It is no bytes object. But where Cython clears fields for the garbage collector it leaves None in them, which the
 * interpreter would take for a dictionary if code that runs meanwhile finds the object. It leaves alone what cannot be
 * part of a cycle, such as bytes, except that it drops them with the object. So here are the slot's own tp_traverse and
 * tp_clear.
 *
 * A module uses this for one class: it defines INSTANCE_DICT_OWNER as the class's C structure, which Cython declares
 * later. A class that is derived from it in the same module has no fields of its own.
 */
#ifndef HOTLOOP_RUNTIME_INSTANCE_DICT_H
#define HOTLOOP_RUNTIME_INSTANCE_DICT_H

#include <Python.h>

/* Begin or end without a dictionary. Cython has filled the slot of a new object with None. */
#define instance_dict_clear(object) Py_CLEAR(((INSTANCE_DICT_OWNER *)(object))->attributes)

#define instance_dict_is_absent(object) (((INSTANCE_DICT_OWNER *)(object))->attributes == NULL)

static traverseproc instance_dict_usual_traverse = NULL; /* Cython's tp_traverse */
static inquiry instance_dict_usual_clear = NULL;         /* Cython's tp_clear; NULL: there is none */
static Py_ssize_t instance_dict_offset = 0;

#define instance_dict_slot(object) ((PyObject **)((char *)(object) + instance_dict_offset))

/* The tp_traverse. A subclass with one of its own calls this one from there, and so for the tp_clear. */
static int instance_dict_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(*instance_dict_slot(object));
    return instance_dict_usual_traverse(object, visit, arg);
}

/* The tp_clear. */
static int instance_dict_clear_object(PyObject *object)
{
    Py_CLEAR(*instance_dict_slot(object));
    return instance_dict_usual_clear(object);
}

static inline void instance_dict_install_at(PyTypeObject *type, Py_ssize_t offset)
{
    if (instance_dict_usual_traverse == NULL) {
        instance_dict_usual_traverse = type->tp_traverse;
        instance_dict_usual_clear = type->tp_clear;
    }
    type->tp_traverse = instance_dict_traverse;
    if (type->tp_clear != NULL)
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
