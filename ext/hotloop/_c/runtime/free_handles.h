/* Handles that have run and that nobody else holds, kept as they are for the next call_soon() or call_soon_threadsafe().
 *
 * Unlike what free_memory.h keeps these are whole objects: initialised, and empty. Taking one costs an eighth of making one. The
 * garbage collector does not know them meanwhile: after a gc.freeze() it would never look at them again, nor at a cycle that one
 * of them is part of later. Without the GIL, where a reference count does not tell who holds an object, nothing is kept; nor
 * with HOTLOOP_KEEP_NOTHING (free_memory.h).
 */
#ifndef HOTLOOP_RUNTIME_FREE_HANDLES_H
#define HOTLOOP_RUNTIME_FREE_HANDLES_H

#include <Python.h>

#define SPARE_CAPACITY 1024

/* Of objects of one class. */
typedef struct {
    PyObject *handles[SPARE_CAPACITY]; /* owned */
    int count;
} spare_handles;

/* True if only the caller holds the handle: nobody can ever see that it is used again. */
static inline int spare_wanted(const spare_handles *spares, PyObject *handle)
{
#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)
    (void)spares;
    (void)handle;
    return 0;
#else
    return Py_REFCNT(handle) == 1 && spares->count < SPARE_CAPACITY
           && *(PyObject **)((char *)handle + Py_TYPE(handle)->tp_weaklistoffset) == NULL;
#endif
}

/* True if only the caller holds it, and its class is none that Python code has made, which may have a finalizer. */
static inline int spare_alone(PyObject *item)
{
#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)
    (void)item;
    return 0;
#else
    return Py_REFCNT(item) == 1 && !PyType_HasFeature(Py_TYPE(item), Py_TPFLAGS_HEAPTYPE);
#endif
}

/* Steals the reference of a handle that was wanted and is empty now. Emptying it may have run code that has filled the last
 * place. */
static inline void spare_put(spare_handles *spares, PyObject *handle)
{
    if (spares->count < SPARE_CAPACITY) {
        PyObject_GC_UnTrack(handle);
        spares->handles[spares->count++] = handle;
    } else {
        Py_DECREF(handle);
    }
}

/* A new reference; NULL: there is none. */
static inline PyObject *spare_take(spare_handles *spares)
{
    PyObject *handle;

    if (spares->count == 0)
        return NULL;
    handle = spares->handles[--spares->count];
    PyObject_GC_Track(handle);
    return handle;
}

#endif
