/* For classes whose objects this package alone makes. A program can reach the class by type(), and an object that was
 * not filled would crash. */
#ifndef HOTLOOP_RUNTIME_NO_CONSTRUCTOR_H
#define HOTLOOP_RUNTIME_NO_CONSTRUCTOR_H

#include <Python.h>

/* To be called at the end of the class's module: Cython's own `Class.__new__(Class)`, in that module, goes on working.
 * No class of another module may derive from the class. */
static inline int remove_constructor(PyTypeObject *type)
{
    type->tp_new = NULL;
    type->tp_vectorcall = NULL;
    type->tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
    if (PyDict_DelItemString(type->tp_dict, "__new__") < 0)
        return -1;
    PyType_Modified(type);
    return 0;
}

#endif
