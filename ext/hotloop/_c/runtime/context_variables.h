/* Tells without a copy whether the current context holds the same variables as a given one.
 *
 * A callback runs in a copy of the context that it was scheduled in. Contexts are objects that the garbage collector knows:
 * thousands of pending timers with a copy each make it collect, and give it twice as much to look at. What a copy copies is
 * one pointer, to a mapping that never changes (PEP 567: setting a variable makes another mapping). So one copy does for all
 * that are scheduled while that pointer stays, as long as nothing ever runs in it: each copies it in turn when it runs.
 *
 * The pointer is private, though where it was in CPython 3.7. context_install() tries it out when the module is imported;
 * where it is not what it was, contexts are never the same. Nor are they without the GIL, where many threads may read a
 * handle that would have to change when it is asked for its context, and where collections have no generations to fill.
 */
#ifndef HOTLOOP_RUNTIME_CONTEXT_VARIABLES_H
#define HOTLOOP_RUNTIME_CONTEXT_VARIABLES_H

#include <Python.h>

#ifdef Py_GIL_DISABLED

#define context_known 0

static inline int context_is_blank(PyObject *context)
{
    (void)context;
    return 0;
}

static inline int context_is_like_current(PyObject *context)
{
    (void)context;
    return 0;
}

static inline int context_install(void) { return 0; }

#else

typedef struct {
    PyObject_HEAD
    PyObject *previous;
    PyObject *variables;
} context_head;

static int context_known = 0;            /* 1: context_is_like_current() can tell */
static PyObject *context_without = NULL; /* owned: one without variables */

static inline PyObject *context_variables(PyObject *context) { return ((context_head *)context)->variables; }

/* Borrowed; NULL in a thread that has not used its context. */
static inline PyObject *context_current(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked()->context;
#else
    return _PyThreadState_UncheckedGet()->context;
#endif
}

/* True if a copy of the current context would be equal to `context`, until a variable is set in one of them. */
static inline int context_is_like_current(PyObject *context)
{
    PyObject *current = context_current();

    return context_known && current != NULL && context_variables(current) == context_variables(context);
}

/* True if no variable is set in it: it keeps no value alive. */
static inline int context_is_blank(PyObject *context)
{
    return context_known && context_variables(context) == context_variables(context_without);
}

/* Set a variable in a copy of the context without any, looking on: 1 as expected, 0 not so, -1 an error. */
static inline int context_shows_change(void)
{
    PyObject *context = PyContext_Copy(context_without);
    PyObject *variable = context == NULL ? NULL : PyContextVar_New("hotloop", NULL);
    PyObject *token = NULL;
    int known = 0;

    if (variable != NULL && PyContext_Enter(context) == 0) {
        known = context_is_like_current(context) && context_is_like_current(context_without);
        token = PyContextVar_Set(variable, Py_None);
        known = known && context_is_like_current(context) && !context_is_like_current(context_without);
        if (PyContext_Exit(context) < 0)
            Py_CLEAR(token);
    }
    if (token == NULL)
        known = -1;
    Py_XDECREF(context);
    Py_XDECREF(variable);
    Py_XDECREF(token);
    return known;
}

/* 0, or -1 with an exception. */
static inline int context_install(void)
{
    int known;

    if ((size_t)PyContext_Type.tp_basicsize < sizeof(context_head) || PyContext_Type.tp_weaklistoffset <= 0)
        return 0;
    context_without = PyContext_New();
    if (context_without == NULL)
        return -1;
    context_known = 1;
    known = context_shows_change();
    context_known = known > 0;
    return known < 0 ? -1 : 0;
}

#endif

#endif
