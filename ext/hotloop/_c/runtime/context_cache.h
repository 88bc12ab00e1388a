/* A cache of contexts for callbacks and tasks to run in.
 *
 * Each callback and each task runs in a copy of the context that was current when it was scheduled. Most set no
 * variable, and no other code asks for the context: it is then freed exactly as it was made. Making and freeing it is a
 * sixth of the cost of a callback. So it is kept, as it is, for the next callback or task.
 *
 * A copy of a context copies one pointer, to a mapping that never changes (PEP 567: setting a variable makes another
 * mapping). So two contexts are equal if they have the same mapping, and one can stand for a copy of the other.
 *
 * A context of the cache is in one of these states:
 *
 * - In use: a callback or task has it, from context_cache_acquire*() to context_cache_release*().
 * - Cached: no other code has a reference to it. One may be `context_cache_recent`, which the garbage collector knows;
 *   the others are unknown to it. All have the variables of the template.
 * - The template, of which there is one while anything is cached. Nothing ever runs in it. A callback of another thread
 *   borrows it in place of a copy of the current context, and acquires one when it runs, in the loop's thread. So does
 *   any callback for which no context is cached when it is scheduled.
 *
 * The template has the variables of the context that the loop runs in, which keeps their values alive anyway. When the
 * loop stops, a template without variables replaces it and the cached contexts are freed; so no value lives longer
 * because of the cache.
 *
 * The pointer to the mapping is private, but it has been in the same place since CPython 3.7. context_cache_install()
 * tries it out when the module is imported; if that fails, no two contexts are equal, and nothing is cached. The same
 * goes for builds without the GIL: many threads may read a handle that would have to change when it is asked for its
 * context, and collections have no generations to fill there. With HOTLOOP_KEEP_NOTHING contexts are compared, but not
 * cached.
 */
#ifndef HOTLOOP_RUNTIME_CONTEXT_CACHE_H
#define HOTLOOP_RUNTIME_CONTEXT_CACHE_H

#include <Python.h>

#include "runtime/recycling.h"

/* -- comparing contexts --
 *
 * The timers of a loop use this without the cache. The garbage collector knows each context; thousands of pending
 * timers with a copy each would make it collect more often, and give it twice as much to look at. So all timers that
 * are set while the variables stay the same share one copy in which nothing ever runs, and each copies it when it runs
 * itself. */

#ifdef Py_GIL_DISABLED

#define context_comparable 0

static inline int context_is_blank(PyObject *context)
{
    (void)context;
    return 0;
}

static inline int context_is_like_current(PyObject *context)
{
    (void)context;
    return 0;
}

static inline PyObject *context_copy(PyObject *context) { return PyContext_Copy(context); }

static inline PyObject *context_copy_current(void) { return PyContext_CopyCurrent(); }

static inline int context_cache_install(void) { return 0; }

#else

typedef struct {
    PyObject_HEAD
    PyObject *previous;
    PyObject *variables;
} context_head;

static int context_comparable = 0;     /* true: the functions below can tell */
static PyObject *context_blank = NULL; /* owned: one without variables */

static inline PyObject *context_variables(PyObject *context) { return ((context_head *)context)->variables; }

/* Borrowed; NULL in a thread that has not used its context. */
static inline PyObject *context_current(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked()->context;
#else
    return _PyThreadState_UncheckedGet()->context;
#endif
}

/* PyContext_Copy(), also of a context that the garbage collector has cleared: CPython's own crashes there.
 *
 * Up to CPython 3.11 the collector may run while the copy is allocated. If a finalizer sets a variable in `context`
 * then, CPython's own copies a mapping that has been freed (compare CPython issue 148891). */
static inline PyObject *context_copy(PyObject *context)
{
#if PY_VERSION_HEX < 0x030C0000
    PyObject *variables, *copy;
#endif

    if (!context_comparable || !PyContext_CheckExact(context))
        return PyContext_Copy(context);
    if (context_variables(context) == NULL)
        return PyContext_New();
#if PY_VERSION_HEX < 0x030C0000
    variables = Py_NewRef(context_variables(context));
    copy = PyContext_Copy(context);
    Py_DECREF(variables);
    return copy;
#else
    return PyContext_Copy(context);
#endif
}

/* The same for the current context. */
static inline PyObject *context_copy_current(void)
{
    PyObject *current = context_current();

    return current == NULL ? PyContext_CopyCurrent() : context_copy(current);
}

/* True if a copy of the current context would be equal to `context`, until a variable is set in one of them. */
static inline int context_is_like_current(PyObject *context)
{
    PyObject *current = context_current();

    return context_comparable && current != NULL && context_variables(current) == context_variables(context);
}

/* True if no variable is set in it, so that it keeps no value alive. */
static inline int context_is_blank(PyObject *context)
{
    return context_comparable && context_variables(context) == context_variables(context_blank);
}

/* Set a variable in a copy of the blank context and compare before and after: 1 as expected, 0 not so, -1 an error. */
static inline int context_shows_change(void)
{
    PyObject *context = PyContext_Copy(context_blank);
    PyObject *variable = context == NULL ? NULL : PyContextVar_New("hotloop", NULL);
    PyObject *token = NULL;
    int expected = 0;

    if (variable != NULL && PyContext_Enter(context) == 0) {
        expected = context_is_like_current(context) && context_is_like_current(context_blank);
        token = PyContextVar_Set(variable, Py_None);
        expected = expected && context_is_like_current(context) && !context_is_like_current(context_blank);
        if (PyContext_Exit(context) < 0)
            Py_CLEAR(token);
    }
    if (token == NULL)
        expected = -1;
    Py_XDECREF(context);
    Py_XDECREF(variable);
    Py_XDECREF(token);
    return expected;
}

/* To be called once, before anything else here. 0, or -1 with an exception. */
static inline int context_cache_install(void)
{
    int expected;

    if ((size_t)PyContext_Type.tp_basicsize < sizeof(context_head) || PyContext_Type.tp_weaklistoffset <= 0)
        return 0;
    context_blank = PyContext_New();
    if (context_blank == NULL)
        return -1;
    context_comparable = 1;
    expected = context_shows_change();
    context_comparable = expected > 0;
    return expected < 0 ? -1 : 0;
}

#endif

/* -- the cache -- */

#if RECYCLING

#define CONTEXT_CACHE_CAPACITY 1024

static PyObject *context_cache_kept[CONTEXT_CACHE_CAPACITY]; /* owned, and unknown to the garbage collector */
static int context_cache_count = 0;
static PyObject *context_cache_recent = NULL;   /* owned: one more, known to the garbage collector; NULL: none */
static PyObject *context_cache_template = NULL; /* owned; NULL: nothing is cached */

/* Whether a cached context is equal to a copy of `context`. */
static inline int context_cache_matches(PyObject *context)
{
    return context_cache_template != NULL && context_variables(context) == context_variables(context_cache_template);
}

/* Make a copy of `context` the template; NULL: of the blank one. Frees what is cached, unless the variables are the
 * same. If there is no memory for the copy, nothing is cached from now on. */
static inline void context_cache_reset(PyObject *context)
{
    PyObject *template, *before, *cached;

    if (!context_comparable)
        return;
    if (context == NULL)
        context = context_blank;
    if (context_cache_matches(context))
        return;
    template = context_copy(context);
    if (template == NULL)
        PyErr_Clear();
    before = context_cache_template;
    context_cache_template = template;
    while (context_cache_count) {
        cached = context_cache_kept[--context_cache_count];
        PyObject_GC_Track(cached);
        Py_DECREF(cached);
    }
    Py_CLEAR(context_cache_recent);
    /* Last, because finalizers of the variables' values may run code. */
    Py_XDECREF(before);
}

/* A loop begins to run in the current context, which a thread that has not used it does not have yet. */
static inline void context_cache_begin_run(void) { context_cache_reset(context_current()); }

/* It has stopped. */
static inline void context_cache_end_run(void) { context_cache_reset(NULL); }

/* Borrowed: the template, if it is equal to a copy of the current context, else NULL. Its borrower runs in a context
 * from context_cache_acquire_for(), or in a copy. */
static inline PyObject *context_cache_template_of_current(void)
{
    PyObject *current = context_current();

    return current != NULL && context_cache_matches(current) ? context_cache_template : NULL;
}

/* A new reference to a cached context; NULL: there is none. */
static inline PyObject *context_cache_take(void)
{
    PyObject *context = context_cache_recent;

    if (context != NULL) {
        context_cache_recent = NULL;
        return context;
    }
    if (context_cache_count == 0)
        return NULL;
    context = context_cache_kept[--context_cache_count];
    PyObject_GC_Track(context);
    return context;
}

/* A new reference to a context for the borrower of `template` to run in; NULL: none is cached, or the template has been
 * replaced since. */
static inline PyObject *context_cache_acquire_for(PyObject *template)
{
    return template == context_cache_template ? context_cache_take() : NULL;
}

/* A copy of `context`, or a cached one in its place, as a new reference. NULL with an exception. */
static inline PyObject *context_cache_acquire_copy(PyObject *context)
{
    PyObject *cached = context_cache_matches(context) ? context_cache_take() : NULL;

    return cached != NULL ? cached : context_copy(context);
}

/* The same for the current context, but NULL without an exception where only a copy would do, which the caller can put
 * off. */
static inline PyObject *context_cache_acquire_cached(void)
{
    PyObject *current = context_current();

    return current != NULL && context_cache_matches(current) ? context_cache_take() : NULL;
}

/* The same, but a copy where only a copy would do. NULL with an exception. */
static inline PyObject *context_cache_acquire(void)
{
    PyObject *cached = context_cache_acquire_cached();

    return cached != NULL ? cached : context_copy_current();
}

/* True if the caller has the only reference, so that no other code can have entered the context or find out that it is
 * used again, and if it has the template's variables. */
static inline int context_cache_accepts(PyObject *context)
{
    return Py_REFCNT(context) == 1 && context_cache_count < CONTEXT_CACHE_CAPACITY && PyContext_CheckExact(context)
           && context_cache_matches(context) && *(PyObject **)((char *)context + PyContext_Type.tp_weaklistoffset) ==
           NULL;
}

/* To be called before the last reference is dropped: the cache takes a reference of its own if it accepts the context.
 *
 * The garbage collector must not know a cached context: if a task is freed because it is garbage, its context is on the
 * collector's list of objects to clear, and would then lose its variables, even if it was in use again. */
static inline void context_cache_release(PyObject *context)
{
    if (context_cache_accepts(context)) {
        PyObject_GC_UnTrack(context);
        context_cache_kept[context_cache_count++] = Py_NewRef(context);
    }
}

/* The same for the context of a callback that has run: the ready queue had a reference, so it cannot be garbage. */
static inline void context_cache_release_of_callback(PyObject *context)
{
    if (context_cache_recent != NULL)
        context_cache_release(context);
    else if (context_cache_accepts(context))
        context_cache_recent = Py_NewRef(context);
}

#else

static inline void context_cache_begin_run(void) {}

static inline void context_cache_end_run(void) {}

static inline PyObject *context_cache_template_of_current(void) { return NULL; }

static inline PyObject *context_cache_acquire_for(PyObject *template)
{
    (void)template;
    return NULL;
}

static inline PyObject *context_cache_acquire_copy(PyObject *context) { return context_copy(context); }

static inline PyObject *context_cache_acquire(void) { return context_copy_current(); }

static inline PyObject *context_cache_acquire_cached(void) { return NULL; }

static inline void context_cache_release(PyObject *context) { (void)context; }

static inline void context_cache_release_of_callback(PyObject *context) { (void)context; }

#endif

#endif
