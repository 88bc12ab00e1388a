/* Free lists: what a freed object leaves behind serves the next object of its type.
 *
 * A loop makes and drops a handle per callback, a future per wait, a task per coroutine and a timer per timeout. There
 * are two policies, and a type may have both:
 *
 * - Raw memory (free_memory_*). The object is freed as usual, and its memory is kept. Taking it costs a third of a trip
 *   through the allocator, and does not count towards the next garbage collection. Cython's own freelists are for
 *   classes without a base class.
 * - Whole objects (free_list_*, free_objects_*). The object is emptied and kept initialised. Acquiring a handle this
 *   way costs an eighth of making one. Where most fields of an object already have their initial value when it is
 *   freed, freeing, clearing and initialising it through three levels of classes costs several times as much as
 *   emptying it.
 *
 * Kept are only objects of exactly the type, because subclasses have their own allocator and finalizer. Whole objects
 * are kept with a reference count of 1 and unknown to the garbage collector: after a gc.freeze() it would never look at
 * them again, nor at a cycle that one of them is part of later. An object with weak references is not kept.
 *
 * Without the GIL nothing is kept: the allocator's own per-thread lists do the same job for memory, and a reference
 * count does not tell who holds an object. With HOTLOOP_KEEP_NOTHING nothing is kept either, so that AddressSanitizer
 * sees every use of what was freed.
 *
 * All lists belong to the module that includes this header: one free_memory and one free_objects, each for one of its
 * own types, and any number of free_list.
 */
#ifndef HOTLOOP_RUNTIME_RECYCLING_H
#define HOTLOOP_RUNTIME_RECYCLING_H

#include <Python.h>
#include <string.h>

#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)
#define RECYCLING 0
#else
#define RECYCLING 1
#endif

/* -- the words of the garbage collector --
 *
 * It keeps two words in front of an object: next, and previous with flags in its low bits. The lowest bit says that the
 * finalizer has run. */
#define COLLECTOR_WORDS 2

#ifdef Py_GIL_DISABLED

static inline void finalizer_skip(PyObject *object) { (void)object; }

#else

/* The finalizer will not be called any more, because it would find nothing to do. */
static inline void finalizer_skip(PyObject *object) { ((uintptr_t *)object)[-1] |= 1; }

/* It will be called again: the next object in this place has not been finalized. */
static inline void finalizer_reset(PyObject *object) { ((uintptr_t *)object)[-1] &= ~(uintptr_t)1; }

#endif

/* -- uncounted memory --
 *
 * The garbage collector counts the objects that PyObject_GC_New() makes, and begins when there are some hundred. It
 * then looks at all young objects, sometimes at all there are. Where a burst makes many handles that live until the
 * loop gets to them, that costs twice as much as all other work. The memory of such classes comes from
 * PyObject_Malloc(). What else a cycle consists of is counted, so the collector still comes. */

#if RECYCLING

/* The tp_alloc. */
static PyObject *uncounted_alloc(PyTypeObject *type, Py_ssize_t items)
{
    size_t collectors = COLLECTOR_WORDS * sizeof(uintptr_t);
    char *memory = PyObject_Malloc(collectors + (size_t)type->tp_basicsize);
    PyObject *object;

    (void)items; /* 0 */
    if (memory == NULL)
        return PyErr_NoMemory();
    memset(memory, 0, collectors + (size_t)type->tp_basicsize);
    object = PyObject_Init((PyObject *)(memory + collectors), type);
    PyObject_GC_Track(object);
    return object;
}

/* The tp_free. */
static void uncounted_free(void *memory) { PyObject_Free((char *)memory - COLLECTOR_WORDS * sizeof(uintptr_t)); }

/* To be called before the first instance exists. */
static inline void uncounted_install(PyTypeObject *type)
{
    type->tp_alloc = uncounted_alloc;
    type->tp_free = uncounted_free;
}

#else

static inline void uncounted_install(PyTypeObject *type) { (void)type; }

#endif

/* -- raw memory --
 *
 * For a module that defines FREE_MEMORY_CAPACITY, how many objects' memory is kept, before it includes this header. */

#ifdef FREE_MEMORY_CAPACITY

#if RECYCLING

static PyTypeObject *free_memory_type = NULL;
static allocfunc free_memory_usual_alloc = NULL; /* the type's own: PyType_GenericAlloc() or uncounted_alloc() */
static freefunc free_memory_usual_free = NULL;
static PyObject *free_memory_kept[FREE_MEMORY_CAPACITY];
static int free_memory_count = 0;

/* The tp_alloc. */
static PyObject *free_memory_acquire(PyTypeObject *type, Py_ssize_t items)
{
    PyObject *object;

    if (type != free_memory_type || free_memory_count == 0)
        return free_memory_usual_alloc(type, items);
    object = free_memory_kept[--free_memory_count];
    memset(object + 1, 0, (size_t)type->tp_basicsize - sizeof(PyObject));
    (void)PyObject_Init(object, type);
    finalizer_reset(object);
    PyObject_GC_Track(object);
    return object;
}

/* The tp_free. */
static void free_memory_release(void *memory)
{
    PyObject *object = memory;

    if (Py_TYPE(object) == free_memory_type && free_memory_count < FREE_MEMORY_CAPACITY)
        free_memory_kept[free_memory_count++] = object;
    else
        free_memory_usual_free(memory);
}

/* To be called before the first instance exists. */
static inline void free_memory_install(PyTypeObject *type)
{
    free_memory_type = type;
    free_memory_usual_alloc = type->tp_alloc;
    free_memory_usual_free = type->tp_free;
    type->tp_alloc = free_memory_acquire;
    type->tp_free = free_memory_release;
}

#else

static inline void free_memory_install(PyTypeObject *type) { (void)type; }

#endif

#endif

/* -- whole objects, which their owner releases --
 *
 * The owner asks free_list_accepts() about an object that it has the last reference to, empties it and releases it. */

#ifndef FREE_LIST_CAPACITY
#define FREE_LIST_CAPACITY 1024
#endif

/* Of objects of one class. */
typedef struct {
    int count;
    PyObject *kept[FREE_LIST_CAPACITY]; /* owned */
} free_list;

/* A new reference to an object that is initialised and empty; NULL: there is none. */
static inline PyObject *free_list_acquire(free_list *list)
{
    PyObject *object;

    if (list->count == 0)
        return NULL;
    object = list->kept[--list->count];
    PyObject_GC_Track(object);
    return object;
}

/* True if there is room, and only the caller has a reference: no code can find out that the object is used again. */
static inline int free_list_accepts(const free_list *list, PyObject *object)
{
#if RECYCLING
    return Py_REFCNT(object) == 1 && list->count < FREE_LIST_CAPACITY
           && *(PyObject **)((char *)object + Py_TYPE(object)->tp_weaklistoffset) == NULL;
#else
    (void)list;
    (void)object;
    return 0;
#endif
}

/* Steals the reference to an object that the list has accepted and that is empty now. Emptying it may have run code
 * that has taken the last room, or that has found the object among the garbage collector's. */
static inline void free_list_release(free_list *list, PyObject *object)
{
    if (list->count < FREE_LIST_CAPACITY && Py_REFCNT(object) == 1) {
        PyObject_GC_UnTrack(object);
        list->kept[list->count++] = object;
    } else {
        Py_DECREF(object);
    }
}

/* True if only the caller has a reference and the class is compiled: one made by Python code may have a finalizer.
 * Always false where nothing is kept. */
static inline int is_unshared_native(PyObject *object)
{
#if RECYCLING
    return Py_REFCNT(object) == 1 && !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
#else
    (void)object;
    return 0;
#endif
}

/* -- whole objects, released when their last reference goes -- */

#if RECYCLING

static free_list free_objects;
static PyTypeObject *free_objects_type = NULL;
static destructor free_objects_usual_dealloc = NULL;     /* Cython's */
static int (*free_objects_is_spent)(PyObject *) = NULL;  /* true: the finalizer need not be called */
static void (*free_objects_empty)(PyObject *) = NULL;    /* gives the fields their initial values; may run any code */

/* Free an object that is not to be kept. */
static void free_objects_dealloc(PyObject *object)
{
    /* Cython calls the finalizer only if its own function is the type's tp_dealloc. */
    if (!PyObject_GC_IsFinalized(object) && PyObject_CallFinalizerFromDealloc(object) < 0)
        return;
    free_objects_usual_dealloc(object);
}

/* The tp_dealloc. */
static void free_objects_release(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    if (type != free_objects_type) {
        /* Called by the tp_dealloc of a subclass, which has seen to the finalizer. */
        free_objects_usual_dealloc(object);
        return;
    }
    if (free_objects.count == FREE_LIST_CAPACITY || *(PyObject **)((char *)object + type->tp_weaklistoffset) != NULL
        || !free_objects_is_spent(object)) {
        free_objects_dealloc(object);
        return;
    }
    PyObject_GC_UnTrack(object);
    Py_SET_REFCNT(object, 1);
    free_objects_empty(object);
    if (free_objects.count < FREE_LIST_CAPACITY) {
        free_objects.kept[free_objects.count++] = object;
        return;
    }
    Py_SET_REFCNT(object, 0);
    PyObject_GC_Track(object);
    free_objects_usual_dealloc(object);
}

/* To be called before the first instance exists. */
static inline void free_objects_install(PyTypeObject *type, int (*is_spent)(PyObject *), void (*empty)(PyObject *))
{
    free_objects_is_spent = is_spent;
    free_objects_empty = empty;
    free_objects_type = type;
    free_objects_usual_dealloc = type->tp_dealloc;
    type->tp_dealloc = free_objects_release;
}

/* A new reference to an object that is initialised and empty; NULL: there is none. */
static inline PyObject *free_objects_acquire(void)
{
    PyObject *object = free_list_acquire(&free_objects);

    if (object != NULL)
        finalizer_reset(object);
    return object;
}

#else

static inline void free_objects_install(PyTypeObject *type, int (*is_spent)(PyObject *), void (*empty)(PyObject *))
{
    (void)type;
    (void)is_spent;
    (void)empty;
}

static inline PyObject *free_objects_acquire(void) { return NULL; }

#endif

#endif
