/* A short cut for a method that nearly everybody calls with one positional argument and nothing else.
 *
 * For a method that takes **keywords Cython makes a dictionary at each call, before it looks whether there are any. This puts
 * a function in front of the method's own, which is asked only where the call or the object is unusual. The method stays the
 * descriptor that it was: with its signature, and for the interpreter with the calling convention that it has specialised on.
 *
 * Included by a module for one method of its own.
 */
#ifndef HOTLOOP_RUNTIME_FAST_METHOD_H
#define HOTLOOP_RUNTIME_FAST_METHOD_H

#include <Python.h>
#include <string.h>

typedef PyObject *(*one_argument_method)(PyObject *self, PyObject *const *items, Py_ssize_t count, PyObject *names);

static one_argument_method one_argument_general = NULL;                       /* the method's own */
static int (*one_argument_suits)(PyObject *self) = NULL;                      /* true: the short cut does the same */
static PyObject *(*one_argument_short)(PyObject *self, PyObject *item) = NULL; /* the short cut */

static PyObject *one_argument_call(PyObject *self, PyObject *const *items, Py_ssize_t count, PyObject *names)
{
    if (count == 1 && names == NULL && one_argument_suits(self))
        return one_argument_short(self, items[0]);
    return one_argument_general(self, items, count, names);
}

/* Before the method is called for the first time. Where it is called otherwise, nothing changes. */
static inline void one_argument_install(PyTypeObject *type, const char *name, int (*suits)(PyObject *),
                                        PyObject *(*cut)(PyObject *, PyObject *))
{
    PyMethodDef *method;

    for (method = type->tp_methods; method != NULL && method->ml_name != NULL; method++) {
        if (strcmp(method->ml_name, name) != 0 || method->ml_flags != (METH_FASTCALL | METH_KEYWORDS))
            continue;
        one_argument_general = (one_argument_method)(void (*)(void))method->ml_meth;
        one_argument_suits = suits;
        one_argument_short = cut;
        method->ml_meth = (PyCFunction)(void (*)(void))one_argument_call;
        return;
    }
}

#endif
