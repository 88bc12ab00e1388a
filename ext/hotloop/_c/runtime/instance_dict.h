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

/* To be called before the first instance exists. Subclasses that are made later inherit it. */
#define instance_dict_install(type) \
    ((type)->tp_dictoffset = (Py_ssize_t)offsetof(INSTANCE_DICT_OWNER, attributes), PyType_Modified(type))

static inline PyObject *instance_dict_get(PyObject *object) { return PyObject_GenericGetDict(object, NULL); }

static inline int instance_dict_set(PyObject *object, PyObject *dict)
{
    return PyObject_GenericSetDict(object, dict, NULL);
}

#endif
