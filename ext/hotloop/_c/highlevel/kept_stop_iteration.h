/* StopIteration(value), which ends `await queue.get()` and others from Python 3.12 on: one exception serves again and
 * again, as long as nothing else has kept or changed it. Making and freeing one costs a sixth of such an `await`.
 *
 * The interpreter takes the value out of the exception at once, and then drops the coroutine. That is when the
 * exception gives the value up: no result lives longer than it would otherwise. */
#ifndef HOTLOOP_HIGHLEVEL_KEPT_STOP_ITERATION_H
#define HOTLOOP_HIGHLEVEL_KEPT_STOP_ITERATION_H

#include <Python.h>

/* As in tasks/stop_iteration.h. */
static int kept_stop_has_context = 0;

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)

static PyStopIterationObject *kept_stop = NULL; /* owned */
static PyObject *kept_stop_arguments = NULL;    /* owned: its `args`, a tuple of one */
static int kept_stop_has_value = 0;             /* both hold a value to give up; otherwise None or True */

static inline int kept_stop_is_unshared(void)
{
    const PyStopIterationObject *stop = kept_stop;

    return stop != NULL && Py_REFCNT(stop) == 1 && stop->args == kept_stop_arguments
           && Py_REFCNT(kept_stop_arguments) == 2 && stop->dict == NULL && stop->notes == NULL
           && stop->traceback == NULL && stop->context == NULL && stop->cause == NULL && !stop->suppress_context;
}

/* In place of one that is shared. False if there is no memory. */
static int kept_stop_make(void)
{
    PyObject *made = PyObject_CallOneArg(PyExc_StopIteration, Py_None);

    if (made == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_XSETREF(kept_stop_arguments, Py_NewRef(((PyStopIterationObject *)made)->args));
    Py_XSETREF(kept_stop, (PyStopIterationObject *)made);
    return kept_stop_is_unshared();
}

/* Steals two references to `value`. */
static inline void kept_stop_fill(PyObject *value)
{
    PyObject *argument = PyTuple_GET_ITEM(kept_stop_arguments, 0), *old = kept_stop->value;

    kept_stop->value = value;
    PyTuple_SET_ITEM(kept_stop_arguments, 0, value);
    Py_XDECREF(old);
    Py_DECREF(argument);
}

/* Set the error indicator to StopIteration(value), which is not None, and return 1; or return 0 where that is to be
 * done in the usual way. For a coroutine whose only reference is that of the `await`. */
static int kept_stop_set(PyObject *value)
{
    if (kept_stop_has_context) {
        PyObject *handled = PyErr_GetHandledException();

        if (handled != NULL) {
            Py_DECREF(handled);
            return 0;
        }
    }
    if (!kept_stop_is_unshared() && !kept_stop_make())
        return 0;
    if (kept_stop->value != value) {
        Py_INCREF(value);
        kept_stop_fill(Py_NewRef(value));
        /* The garbage collector does not track a tuple of None. */
        if (!PyObject_GC_IsTracked(kept_stop_arguments))
            PyObject_GC_Track(kept_stop_arguments);
    }
    kept_stop_has_value = value != Py_True; /* which is immortal, and what locks return */
    PyErr_SetRaisedException(Py_NewRef(kept_stop));
    return 1;
}

static void kept_stop_give_up_value(void)
{
    kept_stop_has_value = 0;
    if (kept_stop_is_unshared()) {
        kept_stop_fill(Py_None); /* which is immortal */
        return;
    }
    Py_CLEAR(kept_stop);
    Py_CLEAR(kept_stop_arguments);
}

/* To be called when a coroutine is freed. */
static inline void kept_stop_release(void)
{
    if (kept_stop_has_value)
        kept_stop_give_up_value();
}

#else

static inline int kept_stop_set(PyObject *value)
{
    (void)value;
    return 0;
}

static inline void kept_stop_release(void) {}

#endif

#endif
