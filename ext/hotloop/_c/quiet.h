/* Exceptions pass through compiled code without leaving a frame, as they pass through asyncio's own C.
 *
 * Cython adds a traceback entry wherever an exception leaves one of its functions. Users would find lines of .pyx files
 * they do not have in the tracebacks of their own exceptions, one more each time a future raises its exception again, and
 * pay for it. So only an exception that has no entry yet, one that was made in compiled code, is given one. Cython calls
 * PyFrame_New() for nothing else. Debug and coverage builds keep all entries.
 */
#ifndef HOTLOOP_QUIET_H
#define HOTLOOP_QUIET_H

#include <Python.h>
#include <frameobject.h>

#if defined(CYTHON_WITHOUT_ASSERTIONS) && !defined(CYTHON_TRACE)

static inline int error_has_traceback(void)
{
    PyObject *traceback;
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();

    traceback = error == NULL ? NULL : PyException_GetTraceback(error);
    Py_XDECREF(traceback);
    PyErr_SetRaisedException(error);
#else
    PyObject *type, *value;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_Restore(type, value, traceback);
#endif
    return traceback != NULL;
}

static inline PyFrameObject *first_frame(PyThreadState *thread, PyCodeObject *code, PyObject *globals, PyObject *locals)
{
    return error_has_traceback() ? NULL : PyFrame_New(thread, code, globals, locals);
}

#define PyFrame_New first_frame

#endif

#endif
