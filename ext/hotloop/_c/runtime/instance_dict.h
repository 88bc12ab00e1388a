/* An instance dictionary that does not exist until somebody sets an attribute.
 *
 * Cython's own `cdef dict __dict__` makes a dictionary with every object. Here the class declares `cdef object
 * attributes`, the __cinit__ empties that slot, and the type is told that its dictionary is there. Besides the
 * dictionary itself this saves the interpreter a search in it: calling a method of an object whose dictionary is absent
 * takes its fastest path. The garbage collector sees the slot as it sees any other.
 */
#ifndef HOTLOOP_RUNTIME_INSTANCE_DICT_H
#define HOTLOOP_RUNTIME_INSTANCE_DICT_H

#include <Python.h>

/* Takes the None out of a slot that Cython has just filled. */
#define instance_dict_absent(slot) Py_CLEAR(slot)

/* Before the first instance exists. Subclasses that are made later inherit it. */
#define instance_dict_install(type, structure, slot) \
    ((type)->tp_dictoffset = (Py_ssize_t)offsetof(structure, slot), PyType_Modified(type))

static inline PyObject *instance_dict_get(PyObject *object) { return PyObject_GenericGetDict(object, NULL); }

static inline int instance_dict_set(PyObject *object, PyObject *dict)
{
    return PyObject_GenericSetDict(object, dict, NULL);
}

#endif
