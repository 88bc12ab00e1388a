/* The error indicator as a bare `raise` and `except` use it: with the exception's own context and traceback. */
#ifndef HOTLOOP_RUNTIME_ERROR_INDICATOR_H
#define HOTLOOP_RUNTIME_ERROR_INDICATOR_H

#include <Python.h>

/* Set the error indicator without changing the exception's context, as a bare `raise` does. */
static inline int set_error_again(PyObject *error)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(Py_NewRef(error));
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), Py_NewRef(error), PyException_GetTraceback(error));
#endif
    return -1;
}

/* The exception that is set, with its traceback; the error indicator is cleared. */
static inline PyObject *take_set_error(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;

    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
#endif
}

/* `error`, with the exception that is being handled as its context, as if it had been raised here and caught. */
static inline PyObject *with_context(PyObject *error)
{
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    return take_set_error();
}

#endif
