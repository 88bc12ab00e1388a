/* The end of an iteration with a value, which is how `await` hears of a result: without making an exception each time.
 *
 * Since 3.12 the interpreter wants an exception object, takes the value out of it and drops it; making one costs more than
 * waiting for the future did. So the memory of one is kept. It is of a class of its own, a subclass of StopIteration,
 * because a class decides what becomes of its freed instances. Only somebody who calls the iterator himself sees it.
 */
#ifndef HOTLOOP_STOP_ITERATION_H
#define HOTLOOP_STOP_ITERATION_H

#include <Python.h>
#include <string.h>

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)

static PyTypeObject *stop_type;
static PyObject *spare_stop; /* its memory, NULL: in use or not there; references nothing, is no object */

static void stop_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    (void)type->tp_clear(self);
    /* Clearing may have run code that has made and dropped another one. */
    if (spare_stop == NULL)
        spare_stop = self;
    else
        PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int stop_prepare(void)
{
    static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)stop_dealloc}, {0, NULL}};
    static PyType_Spec spec = {
        .name = "hotloop._c.future.StopIteration",
        .basicsize = sizeof(PyStopIterationObject),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };

    stop_type = (PyTypeObject *)PyType_FromSpecWithBases(&spec, PyExc_StopIteration);
    return stop_type == NULL ? -1 : 0;
}

/* Raises StopIteration(value). */
static void stop_with(PyObject *value)
{
    PyObject *stop = spare_stop;

    if (stop == NULL) {
        stop = stop_type->tp_alloc(stop_type, 0);
        if (stop == NULL)
            return;
    } else {
        spare_stop = NULL;
        memset(stop + 1, 0, sizeof(PyStopIterationObject) - sizeof(PyObject));
        (void)PyObject_Init(stop, stop_type);
        PyObject_GC_Track(stop);
    }
    ((PyStopIterationObject *)stop)->args = PyTuple_New(0);
    ((PyStopIterationObject *)stop)->value = Py_NewRef(value);
    PyErr_SetRaisedException(stop);
}

#else

static int stop_prepare(void) { return 0; }

static void stop_with(PyObject *value)
{
    PyObject *stop;

    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    /* These would be taken apart. */
    stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
}

#endif

#endif
