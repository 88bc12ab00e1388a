/* A short cut for a method that is nearly always called with one positional argument and nothing else.
 *
 * For a method that takes **keywords, Cython makes a dictionary at each call, even if the call has no keywords. This
 * header puts a function in front of the method, which calls the method itself only if the call or the object is
 * unusual. The descriptor stays the same: it keeps its signature, and the calling convention that the interpreter has
 * specialised on.
 *
 * A module that includes this header can use it for one of its methods.
 */
#ifndef HOTLOOP_RUNTIME_FAST_METHOD_H
#define HOTLOOP_RUNTIME_FAST_METHOD_H

#include <Python.h>
#include <string.h>

typedef PyObject *(*fast_method_function)(PyObject *self, PyObject *const *items, Py_ssize_t count, PyObject *names);

static fast_method_function fast_method_general = NULL;                         /* the method that Cython compiled */
static int (*fast_method_applies)(PyObject *self) = NULL;                       /* true: the short cut does the same */
static PyObject *(*fast_method_short_cut)(PyObject *self, PyObject *item) = NULL; /* for one positional argument */

static PyObject *fast_method_call(PyObject *self, PyObject *const *items, Py_ssize_t count, PyObject *names)
{
    if (count == 1 && names == NULL && fast_method_applies(self))
        return fast_method_short_cut(self, items[0]);
    return fast_method_general(self, items, count, names);
}

/* To be called before the first call of the method. If Cython has given the method another calling convention, the
 * method keeps it and nothing is installed. */
static inline void fast_method_install(PyTypeObject *type, const char *name, int (*applies)(PyObject *),
                                       PyObject *(*short_cut)(PyObject *, PyObject *))
{
    PyMethodDef *method;

    for (method = type->tp_methods; method != NULL && method->ml_name != NULL; method++) {
        if (strcmp(method->ml_name, name) != 0 || method->ml_flags != (METH_FASTCALL | METH_KEYWORDS))
            continue;
        fast_method_general = (fast_method_function)(void (*)(void))method->ml_meth;
        fast_method_applies = applies;
        fast_method_short_cut = short_cut;
        method->ml_meth = (PyCFunction)(void (*)(void))fast_method_call;
        return;
    }
}

#endif
