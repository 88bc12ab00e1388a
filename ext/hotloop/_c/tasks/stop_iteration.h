/* StopIteration with a value, by which `await` gets a result up to Python 3.14.
 *
 * stop_iteration_set() does what PyErr_SetObject(PyExc_StopIteration, value) does, in fewer steps: since 3.12 the
 * interpreter wants an exception object at once, and a call of the class parses its arguments twice.
 */
#ifndef HOTLOOP_TASKS_STOP_ITERATION_H
#define HOTLOOP_TASKS_STOP_ITERATION_H

#include <Python.h>

/* Whether this thread has a trace function (sys.settrace()), which is called for every exception. */
static inline int is_traced(void) { return PyThreadState_Get()->c_tracefunc != NULL; }

/* What hotloop._asyncio.coroutine_results says of this interpreter: whether the exception being handled is the context
 * of such a StopIteration. If so, the `args` are empty where the value is None. */
static int stop_iteration_has_context = 0;

/* stop_iteration_set() sets the error indicator to StopIteration(value). The value must not be lost for lack of memory,
 * because it may be data that a peer has sent. Only the exception's `args` may be missing, at which no `await` looks.
 */
#if PY_VERSION_HEX >= 0x030C0000

/* Owned: the exception for when there is no memory; the garbage collector does not track it. NULL: it is in use. */
static PyObject *stop_iteration_reserve = NULL;

static void stop_iteration_keep_reserve(void)
{
    PyTypeObject *type = (PyTypeObject *)PyExc_StopIteration;
    PyObject *made;

    if (__atomic_load_n(&stop_iteration_reserve, __ATOMIC_RELAXED) != NULL)
        return;
    made = type->tp_alloc(type, 0);
    if (made == NULL) {
        PyErr_Clear();
        return;
    }
    PyObject_GC_UnTrack(made);
    made = __atomic_exchange_n(&stop_iteration_reserve, made, __ATOMIC_ACQ_REL);
    Py_XDECREF(made);
}

static PyObject *stop_iteration_take_reserve(void)
{
    PyObject *stop = __atomic_exchange_n(&stop_iteration_reserve, NULL, __ATOMIC_ACQ_REL);

    if (stop != NULL) {
        PyErr_Clear();
        PyObject_GC_Track(stop);
    }
    return stop;
}

static void stop_iteration_set(PyObject *value)
{
    PyTypeObject *type = (PyTypeObject *)PyExc_StopIteration;
    PyObject *stop = type->tp_alloc(type, 0);
    PyObject *handled;
    int bare = stop_iteration_has_context && value == Py_None;

    if (stop == NULL && (stop = stop_iteration_take_reserve()) == NULL)
        return;
    ((PyStopIterationObject *)stop)->args = bare ? PyTuple_New(0) : PyTuple_Pack(1, value);
    if (((PyStopIterationObject *)stop)->args == NULL) {
        PyErr_Clear();
        ((PyStopIterationObject *)stop)->args = PyTuple_New(0); /* cannot fail: the empty tuple is a singleton */
    }
    stop_iteration_keep_reserve();
    ((PyStopIterationObject *)stop)->value = Py_NewRef(value);
    if (stop_iteration_has_context) {
        handled = PyErr_GetHandledException();
        if (handled != NULL)
            PyException_SetContext(stop, handled);
    }
    PyErr_SetRaisedException(stop);
}

#else

/* Up to 3.11 the interpreter makes the exception object when it is asked for. */
static inline void stop_iteration_keep_reserve(void) {}

static void stop_iteration_set(PyObject *value)
{
    PyObject *stop;

    if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
        return;
    }
    /* PyErr_SetObject() would not wrap a tuple or an exception. */
    stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
}

#endif

#endif
