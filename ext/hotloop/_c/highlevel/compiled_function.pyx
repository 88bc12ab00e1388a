"""CompiledFunction: one of asyncio's own functions, with a compiled short cut in front of it.

The short cut looks at the arguments of each call and does the call only where that is certain to be the same as what
asyncio's function does. Everything else, such as keywords, subclasses, a wrong number of arguments or a class that was
patched, goes to asyncio's function. Programs and tools see that function in a CompiledFunction: its name, signature,
docstring, code and defaults are the function's own.
"""

from cpython.object cimport PyTypeObject

cdef extern from *:
    """
    #include "highlevel/bound_function.h"

    static PyObject *compiled_function_call(PyObject *self, PyObject *const *arguments, size_t count,
                                            PyObject *keywords)
    {
        compiled_function_object *called = (compiled_function_object *)self;
        PyObject *result = called->applied((PyObject **)arguments, PyVectorcall_NARGS(count), keywords);

        if (result != NULL || PyErr_Occurred())
            return result;
        return PyObject_Vectorcall(called->function, arguments, count, keywords);
    }

    static PyObject *compiled_function_get(PyObject *self, PyObject *instance, PyObject *owner)
    {
        (void)owner;
        if (instance == NULL)
            return Py_NewRef(self);
        if (((compiled_function_object *)self)->is_bound_by_async_with)
            return bound_function_new(self, instance);
        return PyMethod_New(self, instance);
    }

    /* What is not set on it is the function's. */
    static PyObject *compiled_function_getattr(PyObject *self, PyObject *name)
    {
        PyObject *found = PyObject_GenericGetAttr(self, name);

        if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            found = PyObject_GetAttr(((compiled_function_object *)self)->function, name);
        }
        return found;
    }

    static PyObject *compiled_function_repr(PyObject *self)
    {
        return PyObject_Repr(((compiled_function_object *)self)->function);
    }

    static int compiled_function_traverse(PyObject *self, visitproc visit, void *arg)
    {
        Py_VISIT(((compiled_function_object *)self)->function);
        Py_VISIT(((compiled_function_object *)self)->attributes);
        return 0;
    }

    static int compiled_function_clear(PyObject *self)
    {
        Py_CLEAR(((compiled_function_object *)self)->function);
        Py_CLEAR(((compiled_function_object *)self)->attributes);
        return 0;
    }

    static void compiled_function_dealloc(PyObject *self)
    {
        PyObject_GC_UnTrack(self);
        if (((compiled_function_object *)self)->weak_references != NULL)
            PyObject_ClearWeakRefs(self);
        (void)compiled_function_clear(self);
        PyObject_GC_Del(self);
    }

    static PyObject *compiled_function_of(PyObject *self, char *name)
    {
        return PyObject_GetAttrString(((compiled_function_object *)self)->function, name);
    }

    /* For pickle. */
    static PyObject *compiled_function_reduce(PyObject *self, PyObject *unused)
    {
        PyObject *module = PyImport_ImportModule("hotloop._asyncio.compiled_classes"), *reduced;

        (void)unused;
        if (module == NULL)
            return NULL;
        reduced = PyObject_CallMethod(module, "reduce_function", "O", self);
        Py_DECREF(module);
        return reduced;
    }

    /* For copy: functions are not copied. */
    static PyObject *compiled_function_copy(PyObject *self, PyObject *unused)
    {
        (void)unused;
        return Py_NewRef(self);
    }

    static PyMethodDef compiled_function_methods[] = {
        {"__reduce__", compiled_function_reduce, METH_NOARGS, NULL},
        {"__copy__", compiled_function_copy, METH_NOARGS, NULL},
        {"__deepcopy__", compiled_function_copy, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };

    /* isinstance() asks for it if the type itself does not match. */
    static PyObject *compiled_function_class(PyObject *self, void *unused)
    {
        (void)self;
        (void)unused;
        return Py_NewRef((PyObject *)&PyFunction_Type);
    }

    static PyGetSetDef compiled_function_getset[] = {
        {"__class__", compiled_function_class, NULL, NULL, NULL},
        {"__doc__", (getter)compiled_function_of, NULL, NULL, "__doc__"},
        {"__module__", (getter)compiled_function_of, NULL, NULL, "__module__"},
        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };

    static PyTypeObject compiled_function_type = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "hotloop.CompiledFunction",
        .tp_basicsize = sizeof(compiled_function_object),
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
        .tp_vectorcall_offset = offsetof(compiled_function_object, call),
        .tp_call = PyVectorcall_Call,
        .tp_descr_get = compiled_function_get,
        .tp_getattro = compiled_function_getattr,
        .tp_setattro = PyObject_GenericSetAttr,
        .tp_repr = compiled_function_repr,
        .tp_traverse = compiled_function_traverse,
        .tp_clear = compiled_function_clear,
        .tp_dealloc = compiled_function_dealloc,
        .tp_methods = compiled_function_methods,
        .tp_getset = compiled_function_getset,
        .tp_dictoffset = offsetof(compiled_function_object, attributes),
        .tp_weaklistoffset = offsetof(compiled_function_object, weak_references),
    };

    static PyObject *make_compiled_function(PyObject *function, vectorcallfunc call, int is_bound_by_async_with)
    {
        compiled_function_object *made = PyObject_GC_New(compiled_function_object, &compiled_function_type);

        if (made == NULL)
            return NULL;
        made->call = call;
        made->is_bound_by_async_with = is_bound_by_async_with;
        made->function = Py_NewRef(function);
        made->attributes = NULL;
        made->weak_references = NULL;
        PyObject_GC_Track((PyObject *)made);
        return (PyObject *)made;
    }
    """
    PyTypeObject compiled_function_type
    int PyType_Ready(PyTypeObject *) except -1
    vectorcallfunc compiled_function_call
    object make_compiled_function(object function, vectorcallfunc call, bint is_bound_by_async_with)
    int bound_function_install() except -1


cdef object compiled_function(object function, short_cut applied):
    """asyncio's `function` with `applied` in front of it."""
    cdef object made = new_compiled_function(function, compiled_function_call)
    (<compiled_function_object *>made).applied = applied
    return made


cdef object new_compiled_function(object function, vectorcallfunc call):
    """asyncio's `function`, called by `call`, which finds in the object what the caller of this one has put there."""
    return make_compiled_function(function, call, function.__name__ in ("__aenter__", "__aexit__"))


PyType_Ready(&compiled_function_type)
bound_function_install()
