/* Attributes that are C fields of an object.
 *
 * The interpreter reads and writes them as it does those of __slots__, at full speed, so that asyncio's own methods
 * lose nothing by them. A program may also delete one: its field is NULL then, which Cython does not expect. Check
 * with fields_are_set() before any use of a field, and again after what may have run any code.
 */
#ifndef HOTLOOP_RUNTIME_FIELDS_H
#define HOTLOOP_RUNTIME_FIELDS_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_OBJECT_EX T_OBJECT_EX
#define _Py_T_OBJECT T_OBJECT
#endif

static PyGetSetDef fields_instance_dict = {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL};

/* Give `type` an attribute for each of `fields`, which ends with a NULL name, and `__dict__`. To be called once, before
 * the first instance exists and after instance_dict_install(); the array must last. */
static int fields_install(PyTypeObject *type, PyMemberDef *fields)
{
    PyObject *names = PyList_New(0), *dict = PyDescr_NewGetSet(type, &fields_instance_dict);
    int failed = names == NULL || dict == NULL || PyDict_SetItemString(type->tp_dict, "__dict__", dict) < 0;

    for (; !failed && fields->name != NULL; fields++) {
        PyObject *name = PyUnicode_InternFromString(fields->name);
        PyObject *member = PyDescr_NewMember(type, fields);

        failed = name == NULL || member == NULL || PyDict_SetItem(type->tp_dict, name, member) < 0
                 || PyList_Append(names, name) < 0;
        Py_XDECREF(name);
        Py_XDECREF(member);
    }
    /* For pickle and copy, which save what __slots__ names. */
    failed = failed || PyDict_SetItemString(type->tp_dict, "__slots__", names) < 0;
    Py_XDECREF(names);
    Py_XDECREF(dict);
    PyType_Modified(type);
    return failed ? -1 : 0;
}

/* For FIELDS_INSTALL(): the field `name` of the C structure `owner`. */
#define FIELD(owner, name) {#name, Py_T_OBJECT_EX, offsetof(owner, name), 0, NULL}

/* FIELD() for one that is None to Python code while it is missing, as if the class had it. */
#define FIELD_OR_NONE(owner, name) {#name, _Py_T_OBJECT, offsetof(owner, name), 0, NULL}

/* fields_install() with the fields that follow. Returns 0, or -1 and an exception. */
#define FIELDS_INSTALL(type, ...) \
    ({ \
        static PyMemberDef fields[] = {__VA_ARGS__, {NULL, 0, 0, 0, NULL}}; \
        fields_install(type, fields); \
    })

/* Whether none of the fields from `first` to `last` of an object was deleted. */
#define FIELDS_ARE_SET(owner, object, first, last) \
    fields_are_set(&((owner *)(object))->first, &((owner *)(object))->last)

static inline int fields_are_set(PyObject **field, PyObject **last)
{
    int missing = 0;

    for (; field <= last; field++)
        missing |= *field == NULL;
    return !missing;
}

/* Begin without the fields from `first` to `last`, as a Python object does. Cython has filled them with None. */
#define FIELDS_CLEAR(owner, object, first, last) fields_clear(&((owner *)(object))->first, &((owner *)(object))->last)

static inline void fields_clear(PyObject **field, PyObject **last)
{
    for (; field <= last; field++)
        Py_CLEAR(*field);
}

/* Fill those that are missing with None: Cython's own assignments then work. For a constructor, which sets them all and
 * meanwhile runs no code of the program's. Returns 0, and has done nothing, if one holds anything but None: the
 * constructor is called again, and what it drops may have a finalizer, which may delete a field. */
#define FIELDS_FILL(owner, object, first, last) fields_fill(&((owner *)(object))->first, &((owner *)(object))->last)

static inline int fields_fill(PyObject **first, PyObject **last)
{
    PyObject **field;

    for (field = first; field <= last; field++)
        if (*field != NULL && *field != Py_None)
            return 0;
    for (field = first; field <= last; field++)
        if (*field == NULL)
            *field = Py_NewRef(Py_None);
    return 1;
}

/* Store a new value in the field `name`, which may be missing. */
#define FIELD_SET(owner, object, name, value) Py_XSETREF(((owner *)(object))->name, Py_NewRef(value))

#endif
