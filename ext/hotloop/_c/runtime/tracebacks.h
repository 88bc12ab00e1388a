/* Exceptions pass through compiled code without leaving a traceback entry, as they pass through asyncio's own C.
 *
 * Cython adds an entry wherever an exception leaves one of its functions. Without this header, users would find lines
 * of .pyx files in the tracebacks of their own exceptions, one more each time a future raises its exception again, and
 * would pay for making them. Cython calls PyFrame_New() for nothing else, except to trace lines, so this header replaces
 * it.
 *
 * An exception that has no entry yet was raised in compiled code, and gets one entry. With HOTLOOP_NO_TRACEBACK_ENTRIES
 * it gets none: setup.py defines that for the modules of tasks/, because asyncio's futures and tasks are C, too, and of
 * highlevel/. Debug builds keep all entries, and so do coverage builds, whose lines are traced.
 *
 * A call may also fail without an exception: CPython 3.11 forgets the one that leaves a Python function if there is no
 * memory for a frame object (take_ownership() in Python/frame.c). An entry for no exception would crash whatever
 * handles it next.
 *
 * With HOTLOOP_NO_TRACEBACK_ENTRIES no `return` may leave an `except X as error:` clause: the C code that Cython
 * generates for it dereferences the exception's traceback. Falling out of the clause is safe, and so is `raise`.
 *
 * setup.py has the compiler include this header ahead of every module.
 */
#ifndef HOTLOOP_RUNTIME_TRACEBACKS_H
#define HOTLOOP_RUNTIME_TRACEBACKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#if defined(HOTLOOP_NO_TRACEBACK_ENTRIES) && defined(CYTHON_WITHOUT_ASSERTIONS) && !defined(CYTHON_TRACE)

#define PyFrame_New(thread, code, globals, locals) NULL

#elif !defined(CYTHON_WITHOUT_ASSERTIONS) || defined(CYTHON_TRACE)

static inline int add_entry(PyFrameObject *frame)
{
    return PyErr_Occurred() != NULL ? PyTraceBack_Here(frame) : 0;
}

#define PyTraceBack_Here add_entry

#else

static inline int wants_entry(void)
{
    PyObject *traceback;
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();

    if (error == NULL)
        return 0;
    traceback = PyException_GetTraceback(error);
    Py_XDECREF(traceback);
    PyErr_SetRaisedException(error);
    return traceback == NULL;
#else
    PyObject *type, *value;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_Restore(type, value, traceback);
    return type != NULL && traceback == NULL;
#endif
}

static inline PyFrameObject *entry_frame(PyThreadState *thread, PyCodeObject *code, PyObject *globals, PyObject *locals)
{
    return wants_entry() ? PyFrame_New(thread, code, globals, locals) : NULL;
}

#define PyFrame_New entry_frame

#endif

#endif
