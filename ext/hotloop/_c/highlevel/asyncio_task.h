/* What asyncio's own tasks say of themselves, without a lookup of the method and a call of it as of any callable: a
 * group of eager tasks asks each of them twice. */
#ifndef HOTLOOP_HIGHLEVEL_ASYNCIO_TASK_H
#define HOTLOOP_HIGHLEVEL_ASYNCIO_TASK_H

#include <Python.h>

#ifdef Py_TPFLAGS_INLINE_VALUES
#define MAKES_DICT_WHEN_ASKED Py_TPFLAGS_INLINE_VALUES /* of tasks, from Python 3.14 on */
#else
#define MAKES_DICT_WHEN_ASKED 0
#endif

/* The C function of a method without arguments that no program can replace in the class; NULL: there is none, or
 * has_no_own_attributes() is not for objects of the class. */
static PyCFunction immutable_method(PyObject *type, const char *name)
{
    unsigned long flags = PyType_GetFlags((PyTypeObject *)type);
    PyObject *method;
    PyCFunction found = NULL;

    if (!(flags & Py_TPFLAGS_IMMUTABLETYPE) || flags & MAKES_DICT_WHEN_ASKED)
        return NULL;
    method = PyObject_GetAttrString(type, name);
    if (method == NULL)
        PyErr_Clear();
    else if (Py_IS_TYPE(method, &PyMethodDescr_Type)
             && ((PyMethodDescrObject *)method)->d_method->ml_flags == METH_NOARGS)
        found = ((PyMethodDescrObject *)method)->d_method->ml_meth;
    Py_XDECREF(method);
    return found;
}

/* Whether a program has not set attributes of its own on the object, which may replace methods. For objects of a class
 * that has an immutable_method(). */
static inline int has_no_own_attributes(PyObject *object)
{
    PyObject **dict = _PyObject_GetDictPtr(object);

    return dict == NULL || *dict == NULL;
}

#endif
