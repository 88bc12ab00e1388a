/* The end of an iteration with a value, which is how `await` hears of a result up to Python 3.14.
 *
 * What PyErr_SetObject(PyExc_StopIteration, value) sets, made in fewer steps: since 3.12 the interpreter wants an exception object
 * at once, and a call of the class takes its arguments apart twice.
 */
#ifndef HOTLOOP_STOP_ITERATION_H
#define HOTLOOP_STOP_ITERATION_H

#include <Python.h>

/* Whether this thread has a trace function (sys.settrace()), which is told of every exception. */
static inline int is_traced(void) { return PyThreadState_Get()->c_tracefunc != NULL; }

/* Sets the error indicator: to StopIteration(value), up to 3.13 StopIteration() if it is None, or to a MemoryError. */
#if PY_VERSION_HEX >= 0x030C0000

static void stop_with(PyObject *value)
{
    PyTypeObject *type = (PyTypeObject *)PyExc_StopIteration;
    PyObject *stop = type->tp_alloc(type, 0);
#if PY_VERSION_HEX < 0x030E0000
    PyObject *handled;
    int bare = value == Py_None;
#else
    /* Here it is StopIteration(None), too, and there is no context. */
    int bare = 0;
#endif

    if (stop == NULL)
        return;
    ((PyStopIterationObject *)stop)->args = bare ? PyTuple_New(0) : PyTuple_Pack(1, value);
    if (((PyStopIterationObject *)stop)->args == NULL) {
        Py_DECREF(stop);
        return;
    }
    ((PyStopIterationObject *)stop)->value = Py_NewRef(value);
#if PY_VERSION_HEX < 0x030E0000
    handled = PyErr_GetHandledException();
    if (handled != NULL)
        PyException_SetContext(stop, handled);
#endif
    PyErr_SetRaisedException(stop);
}

#else

static void stop_with(PyObject *value)
{
    PyObject *stop;

    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    /* These would be taken apart. */
    stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
}

#endif

#endif
