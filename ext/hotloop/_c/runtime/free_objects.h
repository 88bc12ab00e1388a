/* Keeps whole objects of one type that nobody refers to any more, emptied, for the next ones.
 *
 * free_memory.h keeps memory. Where most of an object's fields are back at what a new one begins with when it is freed, freeing,
 * clearing and initialising it through three levels of classes costs several times as much as what is left to do here. An
 * object is kept with a reference count of 1 and unknown to the garbage collector. Only objects of exactly the type are kept,
 * without weak references, and where the finalizer would find nothing to do. Without the GIL nothing is kept, nor with
 * HOTLOOP_KEEP_NOTHING (free_memory.h).
 *
 * Included by a module for one type of its own.
 */
#ifndef HOTLOOP_RUNTIME_FREE_OBJECTS_H
#define HOTLOOP_RUNTIME_FREE_OBJECTS_H

#include <Python.h>

#include "runtime/free_memory.h"

#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)

static inline void reuse_install(PyTypeObject *type, int (*spent)(PyObject *), void (*empty)(PyObject *))
{
    (void)type;
    (void)spent;
    (void)empty;
}

static inline PyObject *reuse_take(void) { return NULL; }

#else

#define REUSE_CAPACITY 1024

static PyObject *reuse_kept[REUSE_CAPACITY]; /* owned */
static int reuse_count = 0;
static PyTypeObject *reuse_type = NULL;
static destructor reuse_usual = NULL;             /* how Cython frees one */
static int (*reuse_spent)(PyObject *) = NULL;     /* true: the finalizer need not be called */
static void (*reuse_empty)(PyObject *) = NULL;    /* makes its fields those of a new object; may run any code */

static void reuse_free(PyObject *object)
{
    /* Cython calls the finalizer only where its own function is the one in the type. */
    if (!PyObject_GC_IsFinalized(object) && PyObject_CallFinalizerFromDealloc(object) < 0)
        return;
    reuse_usual(object);
}

static void reuse_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    if (type != reuse_type) {
        reuse_usual(object); /* a subclass has begun, which has its own finalizer */
        return;
    }
    if (reuse_count == REUSE_CAPACITY || *(PyObject **)((char *)object + type->tp_weaklistoffset) != NULL
        || !reuse_spent(object)) {
        reuse_free(object);
        return;
    }
    PyObject_GC_UnTrack(object);
    Py_SET_REFCNT(object, 1);
    reuse_empty(object);
    if (reuse_count < REUSE_CAPACITY) {
        reuse_kept[reuse_count++] = object;
        return;
    }
    Py_SET_REFCNT(object, 0);
    PyObject_GC_Track(object);
    reuse_usual(object);
}

/* Before the first instance exists. */
static inline void reuse_install(PyTypeObject *type, int (*spent)(PyObject *), void (*empty)(PyObject *))
{
    reuse_spent = spent;
    reuse_empty = empty;
    reuse_type = type;
    reuse_usual = type->tp_dealloc;
    type->tp_dealloc = reuse_dealloc;
}

/* A new reference to an empty object; NULL: there is none. */
static inline PyObject *reuse_take(void)
{
    PyObject *object;

    if (reuse_count == 0)
        return NULL;
    object = reuse_kept[--reuse_count];
    pool_forget_finalizer(object);
    PyObject_GC_Track(object);
    return object;
}

#endif

#endif
