/* What `lock.__aenter__` is on a Python whose `async with` binds that function and __aexit__() to the object, as every
 * Python up to 3.13 does: a light stand-in for a types.MethodType.
 *
 * `async with` calls each of the two once and drops it. Making and freeing two methods costs a seventh of
 * `async with lock:`, mostly in the allocator; these are recycled. Whatever else is done with one is done with a method
 * that is made for it, so isinstance(), attributes, comparisons, pickle and copy find a method.
 *
 * From Python 3.14 on `async with` calls the functions without binding them, and they bind as all functions do. */
#ifndef HOTLOOP_HIGHLEVEL_BOUND_FUNCTION_H
#define HOTLOOP_HIGHLEVEL_BOUND_FUNCTION_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030E0000

#define FREE_LIST_CAPACITY 64
#include "runtime/recycling.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function; /* has a vectorcall; owned; NULL only in one that is kept for later */
    PyObject *owner;    /* owned; NULL like `function` */
    PyObject *weak_references;
} bound_function_object;

static PyObject *bound_function_method(PyObject *self)
{
    bound_function_object *bound = (bound_function_object *)self;

    return PyMethod_New(bound->function, bound->owner);
}

/* With more arguments than __aexit__() has, or with keywords. */
static PyObject *bound_function_call_method(PyObject *self, PyObject *const *arguments, size_t count,
                                            PyObject *keywords)
{
    PyObject *method = bound_function_method(self), *result;

    if (method == NULL)
        return NULL;
    result = PyObject_Vectorcall(method, arguments, count, keywords);
    Py_DECREF(method);
    return result;
}

static PyObject *bound_function_call(PyObject *self, PyObject *const *arguments, size_t count, PyObject *keywords)
{
    bound_function_object *bound = (bound_function_object *)self;
    Py_ssize_t positional = PyVectorcall_NARGS(count), index;
    PyObject *all[4];
    vectorcallfunc call;

    if (positional > 3 || keywords != NULL)
        return bound_function_call_method(self, arguments, count, keywords);
    all[0] = bound->owner;
    for (index = 0; index < positional; index++)
        all[index + 1] = arguments[index];
    call = *(vectorcallfunc *)((char *)bound->function + Py_TYPE(bound->function)->tp_vectorcall_offset);
    return call(bound->function, all, (size_t)positional + 1, NULL);
}

/* copy.deepcopy() asks an object before it knows what to do with it, and a method would have the function answer. */
static PyObject *bound_function_deepcopy(PyObject *self, PyObject *memo)
{
    PyObject *module = PyImport_ImportModule("copy"), *owner = NULL, *copied = NULL;

    if (module != NULL)
        owner = PyObject_CallMethod(module, "deepcopy", "OO", ((bound_function_object *)self)->owner, memo);
    if (owner != NULL)
        copied = PyMethod_New(((bound_function_object *)self)->function, owner);
    Py_XDECREF(owner);
    Py_XDECREF(module);
    return copied;
}

static PyMethodDef bound_function_methods[] = {
    {"__deepcopy__", bound_function_deepcopy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* type(method)(function, owner), for weakref.WeakMethod. */
static PyObject *bound_function_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    return PyObject_Call((PyObject *)&PyMethod_Type, arguments, keywords);
}

static PyObject *bound_function_getattr(PyObject *self, PyObject *name)
{
    PyObject *method, *found;

    if (PyUnicode_CompareWithASCIIString(name, "__deepcopy__") == 0)
        return PyObject_GenericGetAttr(self, name);
    method = bound_function_method(self);
    if (method == NULL)
        return NULL;
    found = PyObject_GetAttr(method, name);
    Py_DECREF(method);
    return found;
}

static int bound_function_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    PyObject *method = bound_function_method(self);
    int status;

    if (method == NULL)
        return -1;
    status = PyObject_SetAttr(method, name, value);
    Py_DECREF(method);
    return status;
}

static PyObject *bound_function_repr(PyObject *self)
{
    PyObject *method = bound_function_method(self), *shown;

    if (method == NULL)
        return NULL;
    shown = PyObject_Repr(method);
    Py_DECREF(method);
    return shown;
}

static Py_hash_t bound_function_hash(PyObject *self)
{
    PyObject *method = bound_function_method(self);
    Py_hash_t hash;

    if (method == NULL)
        return -1;
    hash = PyObject_Hash(method);
    Py_DECREF(method);
    return hash;
}

/* `other` is a method, or bound as this one is: then it compares itself with this one's method. */
static PyObject *bound_function_compare(PyObject *self, PyObject *other, int operation)
{
    PyObject *method = bound_function_method(self), *result;

    if (method == NULL)
        return NULL;
    if (PyMethod_Check(other))
        result = Py_TYPE(method)->tp_richcompare(method, other, operation);
    else if (Py_IS_TYPE(other, Py_TYPE(self)))
        result = bound_function_compare(other, method, operation);
    else
        result = Py_NewRef(Py_NotImplemented);
    Py_DECREF(method);
    return result;
}

static int bound_function_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((bound_function_object *)self)->function);
    Py_VISIT(((bound_function_object *)self)->owner);
    return 0;
}

static void bound_function_empty(PyObject *self)
{
    bound_function_object *bound = (bound_function_object *)self;

    Py_CLEAR(bound->function);
    Py_CLEAR(bound->owner);
}

static void bound_function_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((bound_function_object *)self)->weak_references != NULL)
        PyObject_ClearWeakRefs(self);
    bound_function_empty(self);
    PyObject_GC_Del(self);
}

static int bound_function_is_spent(PyObject *self)
{
    (void)self;
    return 1;
}

/* It has no tp_clear, just as a method has none: whatever a cycle with one has in it as well can be cleared. */
static PyTypeObject bound_function_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "hotloop.BoundFunction",
    .tp_basicsize = sizeof(bound_function_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(bound_function_object, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = bound_function_getattr,
    .tp_setattro = bound_function_setattr,
    .tp_repr = bound_function_repr,
    .tp_hash = bound_function_hash,
    .tp_richcompare = bound_function_compare,
    .tp_traverse = bound_function_traverse,
    .tp_methods = bound_function_methods,
    .tp_new = bound_function_make,
    .tp_dealloc = bound_function_dealloc,
    .tp_weaklistoffset = offsetof(bound_function_object, weak_references),
};

static int bound_function_install(void)
{
    if (PyType_Ready(&bound_function_type) < 0)
        return -1;
    free_objects_install(&bound_function_type, bound_function_is_spent, bound_function_empty);
    return 0;
}

static PyObject *bound_function_new(PyObject *function, PyObject *owner)
{
    bound_function_object *made = (bound_function_object *)free_objects_acquire();

    if (made == NULL) {
        made = PyObject_GC_New(bound_function_object, &bound_function_type);
        if (made == NULL)
            return NULL;
        made->call = bound_function_call;
        made->function = made->owner = made->weak_references = NULL;
        PyObject_GC_Track((PyObject *)made);
    }
    made->function = Py_NewRef(function);
    made->owner = Py_NewRef(owner);
    return (PyObject *)made;
}

#else

static int bound_function_install(void) { return 0; }

static PyObject *bound_function_new(PyObject *function, PyObject *owner) { return PyMethod_New(function, owner); }

#endif

#endif
