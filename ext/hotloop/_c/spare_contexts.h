/* Contexts that nobody has any more, kept as they are for the next callbacks and tasks.
 *
 * Each callback and each task gets a copy of the current context to run in. Most of them set no variable, and nobody asks
 * for the context: it is then freed exactly as it was made. Making and freeing it is a sixth of what a callback costs.
 *
 * Kept are those whose variables are the ones of the context that the loop runs in, which holds them anyway; where
 * there are variables they are freed when the loop stops. So no value of a variable lives longer than without this. context.h says how variables are compared;
 * where that cannot be done, nothing is kept.
 */
#ifndef HOTLOOP_SPARE_CONTEXTS_H
#define HOTLOOP_SPARE_CONTEXTS_H

#include "context.h"

#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)

static inline PyObject *spare_context_copy_current(void) { return PyContext_CopyCurrent(); }

static inline void spare_context_offer(PyObject *context) { (void)context; }

static inline void spare_contexts_begin(void) {}

static inline void spare_contexts_end(void) {}

#else

#define SPARE_CONTEXTS 1024

static PyObject *spare_contexts[SPARE_CONTEXTS]; /* owned, and unknown to the garbage collector */
static int spare_contexts_count = 0;
static PyObject *spare_contexts_variables = NULL; /* owned: those of each that is kept; NULL: none ever was */

/* Give up all, and keep from now on those with these variables. */
static inline void spare_contexts_keep(PyObject *variables)
{
    PyObject *before = spare_contexts_variables;
    PyObject *context;

    if (before == variables)
        return;
    spare_contexts_variables = Py_XNewRef(variables);
    while (spare_contexts_count) {
        context = spare_contexts[--spare_contexts_count];
        PyObject_GC_Track(context);
        Py_DECREF(context);
    }
    Py_XDECREF(before);
}

/* A loop begins to run in the current context, which a thread that has not used it does not have yet. */
static inline void spare_contexts_begin(void)
{
    PyObject *current = context_current();

    if (context_known)
        spare_contexts_keep(context_variables(current == NULL ? context_without : current));
}

/* It has stopped. */
static inline void spare_contexts_end(void)
{
    if (context_known)
        spare_contexts_keep(context_variables(context_without));
}

/* A copy of the current context, as a new reference. */
static inline PyObject *spare_context_copy_current(void)
{
    PyObject *context = context_current();

    if (spare_contexts_count == 0 || context == NULL || context_variables(context) != spare_contexts_variables)
        return PyContext_CopyCurrent();
    context = spare_contexts[--spare_contexts_count];
    PyObject_GC_Track(context);
    return context;
}

/* Keeps the context if the caller's is the only reference: nobody can have entered it, nor ever see that it is used again.
 *
 * The garbage collector must not know it meanwhile. Where a task is freed because it is garbage, its context is on the
 * collector's list of what to clear, and would lose its variables afterwards, wherever it was then. */
static inline void spare_context_offer(PyObject *context)
{
    if (Py_REFCNT(context) == 1 && spare_contexts_count < SPARE_CONTEXTS && spare_contexts_variables != NULL
        && PyContext_CheckExact(context) && context_variables(context) == spare_contexts_variables
        && *(PyObject **)((char *)context + PyContext_Type.tp_weaklistoffset) == NULL) {
        PyObject_GC_UnTrack(context);
        spare_contexts[spare_contexts_count++] = Py_NewRef(context);
    }
}

#endif

#endif
