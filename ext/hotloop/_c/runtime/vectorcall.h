/* Calls a callable with a tuple of positional arguments.
 *
 * PyObject_Vectorcall() without what a callback does not need: looking up the thread state, and checking that a result and
 * an error do not come together, which the interpreter's own calls of the same functions do not check either.
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
