/* Keeps the memory of a few freed objects of one type for the next ones.
 *
 * A loop makes and drops a Future per wait, a TimerHandle per timeout: taking such an object from here costs a third of a
 * trip through the allocator, and does not count towards the next garbage collection. (Cython's own freelists are for
 * classes without a base class.) Only objects of exactly the type are kept, subclasses have their own allocator. Without
 * the GIL the allocator's own per-thread lists do the same job. With HOTLOOP_KEEP_NOTHING nothing is kept either, so that
 * AddressSanitizer sees every use of what was freed.
 *
 *     POOL(Future, capacity)         defines the pool
 *     pool_install_Future(type)      hangs it into the type, before the first instance exists
 */
#ifndef HOTLOOP_RUNTIME_FREE_MEMORY_H
#define HOTLOOP_RUNTIME_FREE_MEMORY_H

#include <Python.h>
#include <string.h>

#ifdef Py_GIL_DISABLED

static inline void pool_spare_finalizer(PyObject *object) { (void)object; }

#else

/* The words that the garbage collector keeps in front of an object: next, and previous with flags in its low bits. The
 * lowest one says that the finalizer has run, which the next object in this memory has not seen. */
static inline void pool_forget_finalizer(PyObject *object) { ((uintptr_t *)object)[-1] &= ~(uintptr_t)1; }

/* The finalizer would find nothing to do any more: it need not be called. */
static inline void pool_spare_finalizer(PyObject *object) { ((uintptr_t *)object)[-1] |= 1; }

#endif

#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)

#define POOL(name, capacity) \
    static void pool_install_##name(PyTypeObject *type) { (void)type; }

#else

#define POOL(name, capacity)                                                                \
    static PyTypeObject *pool_type_##name;                                                  \
    static PyObject *pool_##name[capacity];                                                \
    static int pool_count_##name;                                                           \
                                                                                            \
    static PyObject *pool_alloc_##name(PyTypeObject *type, Py_ssize_t items)                \
    {                                                                                       \
        PyObject *object;                                                                   \
                                                                                            \
        if (type != pool_type_##name || pool_count_##name == 0)                             \
            return PyType_GenericAlloc(type, items);                                        \
        object = pool_##name[--pool_count_##name];                                          \
        memset(object + 1, 0, (size_t)type->tp_basicsize - sizeof(PyObject));               \
        (void)PyObject_Init(object, type);                                                  \
        pool_forget_finalizer(object);                                                      \
        PyObject_GC_Track(object);                                                          \
        return object;                                                                      \
    }                                                                                       \
                                                                                            \
    static void pool_free_##name(void *memory)                                              \
    {                                                                                       \
        PyObject *object = memory;                                                          \
                                                                                            \
        if (Py_TYPE(object) == pool_type_##name && pool_count_##name < (capacity))          \
            pool_##name[pool_count_##name++] = object;                                      \
        else                                                                                \
            PyObject_GC_Del(object);                                                        \
    }                                                                                       \
                                                                                            \
    static void pool_install_##name(PyTypeObject *type)                                     \
    {                                                                                       \
        pool_type_##name = type;                                                            \
        type->tp_alloc = pool_alloc_##name;                                                 \
        type->tp_free = pool_free_##name;                                                   \
    }

#endif

#endif
