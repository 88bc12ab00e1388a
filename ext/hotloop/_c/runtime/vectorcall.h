/* Calls a callable with a tuple of positional arguments.
 *
 * This is PyObject_Vectorcall() without two steps that a callback does not need. It does not look up the thread state.
 * Nor does it check that the callable has not both returned a result and set an error; the interpreter's own calls of
 * the same functions do not check that either.
 */
#ifndef HOTLOOP_RUNTIME_VECTORCALL_H
#define HOTLOOP_RUNTIME_VECTORCALL_H

#include <Python.h>

static inline PyObject *call_with_tuple(PyObject *callable, PyObject *args)
{
    PyTypeObject *type = Py_TYPE(callable);
    PyObject *const *items = ((PyTupleObject *)args)->ob_item;
    size_t count = (size_t)PyTuple_GET_SIZE(args);

    if (PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL)) {
        vectorcallfunc call = *(vectorcallfunc *)((char *)callable + type->tp_vectorcall_offset);

        if (call != NULL)
            return call(callable, items, count, NULL);
    }
    return PyObject_Vectorcall(callable, items, count, NULL);
}

#endif
