/* The exception that is being handled, as sys.exc_info() and the context of new exceptions have it, is not changed by
 * compiled code.
 *
 * Each Python coroutine has a place of its own for it, empty where the coroutine handles none. Cython's `try` saves the
 * innermost exception that any caller handles, and puts it back into the place on top: the coroutine would go on
 * handling its caller's exception for good.
 */
#ifndef HOTLOOP_RUNTIME_HANDLED_EXCEPTION_H
#define HOTLOOP_RUNTIME_HANDLED_EXCEPTION_H

#include <Python.h>

/* The place on top if it is empty, for handled_exception_leave(); else NULL: then Cython puts back what was there. */
static inline _PyErr_StackItem *handled_exception_enter(void)
{
    _PyErr_StackItem *top = PyThreadState_Get()->exc_info;

    return top->exc_value == NULL || top->exc_value == Py_None ? top : NULL;
}

static inline void handled_exception_leave(_PyErr_StackItem *empty)
{
    if (empty != NULL)
        Py_CLEAR(empty->exc_value);
}

#endif
