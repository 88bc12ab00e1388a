/* StopIteration(True), which ends `await lock.acquire()` and others from Python 3.12 on: one exception serves again and
 * again, as long as nothing has kept or changed it. Making one costs a third of such an `await`. */
#ifndef HOTLOOP_HIGHLEVEL_STOP_WITH_TRUE_H
#define HOTLOOP_HIGHLEVEL_STOP_WITH_TRUE_H

#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)

static PyStopIterationObject *stop_with_true = NULL; /* owned */
static PyObject *stop_with_true_arguments = NULL;    /* owned: its `args` */

static inline int stop_with_true_is_new(void)
{
    const PyStopIterationObject *stop = stop_with_true;

    return stop != NULL && Py_REFCNT(stop) == 1 && stop->value == Py_True && stop->args == stop_with_true_arguments
           && stop->dict == NULL && stop->notes == NULL && stop->traceback == NULL && stop->context == NULL
           && stop->cause == NULL && !stop->suppress_context;
}

/* Set the error indicator to StopIteration(True) and return 1; or return 0 where that is to be done in the usual way. */
static int stop_with_true_set(void)
{
#if PY_VERSION_HEX < 0x030E0000
    PyObject *handled = PyErr_GetHandledException();

    if (handled != NULL) { /* the context, up to 3.13 */
        Py_DECREF(handled);
        return 0;
    }
#endif
    if (!stop_with_true_is_new()) {
        PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, Py_True);

        if (made == NULL) {
            PyErr_Clear();
            return 0;
        }
        Py_XSETREF(stop_with_true_arguments, Py_NewRef(((PyStopIterationObject *)made)->args));
        Py_XSETREF(stop_with_true, (PyStopIterationObject *)made);
    }
    PyErr_SetRaisedException(Py_NewRef(stop_with_true));
    return 1;
}

#else

static inline int stop_with_true_set(void) { return 0; }

#endif

#endif
