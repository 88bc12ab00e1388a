/* What a task needs to drive a coroutine beside PyIter_Send(): throw(), and the value of a StopIteration. */
#ifndef HOTLOOP_TASKS_COROUTINE_H
#define HOTLOOP_TASKS_COROUTINE_H

#include <Python.h>

static PyObject *coroutine_throw_name; /* "throw", interned; owned by the module */

/* Returns -1 with an exception set: no memory. */
static inline int coroutine_install(void)
{
    coroutine_throw_name = PyUnicode_InternFromString("throw");
    return coroutine_throw_name == NULL ? -1 : 0;
}

/* coroutine.throw(error): a new reference to what it yields; NULL: error indicator set, StopIteration included. */
static inline PyObject *coroutine_throw(PyObject *coroutine, PyObject *error)
{
    return PyObject_CallMethodOneArg(coroutine, coroutine_throw_name, error);
}

/* The value that a StopIteration carries, whatever a subclass shows as its `value`. */
static inline PyObject *coroutine_result(PyObject *stopped)
{
    PyObject *value = ((PyStopIterationObject *)stopped)->value;

    return Py_NewRef(value == NULL ? Py_None : value);
}

#endif
