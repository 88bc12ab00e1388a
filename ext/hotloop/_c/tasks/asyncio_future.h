/* Awaiting asyncio's own compiled futures and tasks: by the methods of their class, found once. asyncio's Task does so,
 * too, and does not look for attributes that a program has set on the object. */
#ifndef HOTLOOP_TASKS_ASYNCIO_FUTURE_H
#define HOTLOOP_TASKS_ASYNCIO_FUTURE_H

#include <Python.h>

static PyTypeObject *asyncio_future_type, *asyncio_task_type; /* NULL: not as expected here */
static PyGetSetDef *asyncio_future_blocking;              /* _asyncio_future_blocking */
static PyObject *asyncio_future_get_loop, *asyncio_future_add_done_callback, *asyncio_future_result;
static PyObject *asyncio_future_keywords;  /* ("context",) */
static PyMethodDef *asyncio_future_wakeup; /* TaskCore._wakeup() */

static inline int asyncio_future_is_immutable(PyObject *type)
{
    return PyType_Check(type) && PyType_HasFeature((PyTypeObject *)type, Py_TPFLAGS_IMMUTABLETYPE);
}

/* The class's method, which must be one in C; NULL without an exception: it is not. */
static PyObject *asyncio_future_method(PyObject *type, const char *name)
{
    PyObject *method = PyObject_GetAttrString(type, name);

    PyErr_Clear();
    if (method != NULL && !Py_IS_TYPE(method, &PyMethodDescr_Type))
        Py_CLEAR(method);
    return method;
}

/* Find the classes' methods. `wakeup` is TaskCore._wakeup, a method descriptor. */
static int asyncio_future_find(PyObject *future, PyObject *task, PyObject *wakeup)
{
    PyObject *blocking;

    if (!asyncio_future_is_immutable(future) || !asyncio_future_is_immutable(task))
        return 0;
    asyncio_future_keywords = Py_BuildValue("(s)", "context");
    blocking = PyObject_GetAttrString(future, "_asyncio_future_blocking");
    if (asyncio_future_keywords == NULL || blocking == NULL)
        return -1;
    asyncio_future_get_loop = asyncio_future_method(future, "get_loop");
    asyncio_future_add_done_callback = asyncio_future_method(future, "add_done_callback");
    asyncio_future_result = asyncio_future_method(future, "result");
    if (Py_IS_TYPE(blocking, &PyGetSetDescr_Type) && asyncio_future_get_loop != NULL
        && asyncio_future_add_done_callback != NULL && asyncio_future_result != NULL) {
        asyncio_future_blocking = ((PyGetSetDescrObject *)blocking)->d_getset;
        asyncio_future_wakeup = ((PyMethodDescrObject *)wakeup)->d_method;
        asyncio_future_type = (PyTypeObject *)Py_NewRef(future);
        asyncio_task_type = (PyTypeObject *)Py_NewRef(task);
    }
    /* What `asyncio_future_blocking` points to is the class's, and the reference above keeps the class. */
    Py_DECREF(blocking);
    return 0;
}

/* Whether the functions below are for this object: it is of asyncio's class, and not of a subclass. */
static inline int is_asyncio_future(PyObject *object)
{
    return Py_IS_TYPE(object, asyncio_future_type) || Py_IS_TYPE(object, asyncio_task_type);
}

static inline PyObject *asyncio_future_loop(PyObject *future)
{
    return PyObject_CallOneArg(asyncio_future_get_loop, future);
}

/* future._asyncio_future_blocking; -1 with an exception. */
static inline int asyncio_future_is_blocking(PyObject *future)
{
    PyObject *blocking = asyncio_future_blocking->get(future, asyncio_future_blocking->closure);
    int is_true = blocking == NULL ? -1 : PyObject_IsTrue(blocking);

    Py_XDECREF(blocking);
    return is_true;
}

/* future._asyncio_future_blocking = False; future.add_done_callback(task._wakeup, context=context) */
static inline int asyncio_future_wait(PyObject *future, PyObject *task, PyObject *context)
{
    PyObject *wakeup, *result;

    if (asyncio_future_blocking->set(future, Py_False, asyncio_future_blocking->closure) < 0)
        return -1;
    wakeup = PyCFunction_New(asyncio_future_wakeup, task);
    if (wakeup == NULL)
        return -1;
    result = PyObject_Vectorcall(asyncio_future_add_done_callback, (PyObject *[]){future, wakeup, context}, 2,
                                 asyncio_future_keywords);
    Py_DECREF(wakeup);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* future.result() */
static inline PyObject *asyncio_future_get_result(PyObject *future)
{
    return PyObject_CallOneArg(asyncio_future_result, future);
}

#endif
