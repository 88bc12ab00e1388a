/* How the interpreter awaits a compiled coroutine, and what a coroutine asks the interpreter when it is made or
 * awaited.
 *
 * Cython has no special method for am_await that programs would see as a coroutine's `__await__`, and a class with an
 * `__iter__` would be iterable.
 */
#ifndef HOTLOOP_HIGHLEVEL_AWAIT_SLOTS_H
#define HOTLOOP_HIGHLEVEL_AWAIT_SLOTS_H

#include <Python.h>

#include "runtime/no_constructor.h"

/* Make Cython's class what a coroutine's is. It gets the slots by which the interpreter awaits a coroutine, also by
 * `yield from` in a generator of types.coroutine(), and the method for programs. The iteration gets no name in the
 * class: a coroutine is not iterable. Nor can programs make one. */
static inline int complete_coroutine_type(PyTypeObject *type, unaryfunc await, unaryfunc iterate, PyCFunction method)
{
    static PyAsyncMethods slots;
    static PyMethodDef definition = {
        "__await__", NULL, METH_NOARGS, "Return an iterator to be used in await expression."
    };
    PyObject *descriptor;
    int failed;

    slots.am_await = await;
    type->tp_as_async = &slots;
    type->tp_iter = iterate;
    definition.ml_meth = method;
    descriptor = PyDescr_NewMethod(type, &definition);
    failed = descriptor == NULL || PyDict_SetItemString(type->tp_dict, "__await__", descriptor) < 0;
#if PY_VERSION_HEX < 0x030F0000
    /* Before, a coroutine has no such attribute. */
    failed = failed || PyDict_DelItemString(type->tp_dict, "cr_state") < 0;
#endif
    Py_XDECREF(descriptor);
    return failed ? -1 : remove_constructor(type);
}

/* The flags of the Python code that runs; 0: there is none. */
static inline int running_code_flags(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame == NULL ? NULL : PyFrame_GetCode(frame);
    int flags = code == NULL ? 0 : code->co_flags;

    Py_XDECREF(code);
    return flags;
}

static inline int origin_tracking_depth(void) { return PyThreadState_Get()->coroutine_origin_tracking_depth; }

/* type(awaitable).__await__(awaitable); NULL without an exception: the type has no such method. */
static PyObject *call_await_method(PyObject *awaitable)
{
    PyAsyncMethods *methods = Py_TYPE(awaitable)->tp_as_async;

    return methods == NULL || methods->am_await == NULL ? NULL : methods->am_await(awaitable);
}

#endif
