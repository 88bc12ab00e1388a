/* Contexts that nobody has any more, kept as they are for the next callbacks and tasks.
 *
 * Each callback and each task gets a copy of the current context to run in. Most of them set no variable, and nobody asks
 * for the context: it is then freed exactly as it was made. Making and freeing it is a sixth of what a callback costs.
 * A callback of another thread takes one only when it runs: until then it has been lent the model, a context that nothing ever
 * runs in.
 *
 * Kept are those whose variables are the ones of the context that the loop runs in, which holds them anyway; where
 * there are variables they are freed when the loop stops. So no value of a variable lives longer than without this. context_variables.h
 * says how variables are compared; where that cannot be done, nothing is kept or lent.
 */
#ifndef HOTLOOP_RUNTIME_CONTEXT_CACHE_H
#define HOTLOOP_RUNTIME_CONTEXT_CACHE_H

#include "runtime/context_variables.h"

#if defined(Py_GIL_DISABLED) || defined(HOTLOOP_KEEP_NOTHING)

static inline PyObject *spare_context_copy_current(void) { return PyContext_CopyCurrent(); }

static inline PyObject *spare_context_model(void) { return NULL; }

static inline PyObject *spare_context_for(PyObject *model)
{
    (void)model;
    return NULL;
}

static inline PyObject *spare_context_copy(PyObject *context) { return PyContext_Copy(context); }

static inline void spare_context_offer(PyObject *context) { (void)context; }

static inline void spare_context_put_down(PyObject *context) { (void)context; }

static inline void spare_contexts_begin(void) {}

static inline void spare_contexts_end(void) {}

#else

#define SPARE_CONTEXTS 1024

static PyObject *spare_contexts[SPARE_CONTEXTS]; /* owned, and unknown to the garbage collector */
static int spare_contexts_count = 0;
static PyObject *spare_context_at_hand = NULL; /* owned; one more, that the garbage collector knows; NULL: there is none */
static PyObject *spare_contexts_model = NULL;  /* owned: with the variables of each that is kept; NULL: none is */

static inline int spare_context_fits(PyObject *context)
{
    return spare_contexts_model != NULL && context_variables(context) == context_variables(spare_contexts_model);
}

/* Give up all, and keep from now on those with the variables of `context`; NULL: those without any. Where there is no
 * memory for a model, none is kept. */
static inline void spare_contexts_keep(PyObject *context)
{
    PyObject *model, *before, *spare;

    if (!context_known)
        return;
    if (context == NULL)
        context = context_without;
    if (spare_context_fits(context))
        return;
    model = PyContext_Copy(context);
    if (model == NULL)
        PyErr_Clear();
    before = spare_contexts_model;
    spare_contexts_model = model;
    while (spare_contexts_count) {
        spare = spare_contexts[--spare_contexts_count];
        PyObject_GC_Track(spare);
        Py_DECREF(spare);
    }
    Py_CLEAR(spare_context_at_hand);
    /* Last: when the variables go, code may run. */
    Py_XDECREF(before);
}

/* A loop begins to run in the current context, which a thread that has not used it does not have yet. */
static inline void spare_contexts_begin(void) { spare_contexts_keep(context_current()); }

/* It has stopped. */
static inline void spare_contexts_end(void) { spare_contexts_keep(NULL); }

/* Borrowed: what may be lent in place of a copy of the current context; NULL: nothing. Who has it runs in what
 * spare_context_for() gives him for it, or in a copy. */
static inline PyObject *spare_context_model(void)
{
    PyObject *current = context_current();

    return current != NULL && spare_context_fits(current) ? spare_contexts_model : NULL;
}

/* NULL: there is none. */
static inline PyObject *spare_context_take(void)
{
    PyObject *context = spare_context_at_hand;

    if (context != NULL) {
        spare_context_at_hand = NULL;
        return context;
    }
    if (spare_contexts_count == 0)
        return NULL;
    context = spare_contexts[--spare_contexts_count];
    PyObject_GC_Track(context);
    return context;
}

/* A new reference to a context to run in, for who was lent the model; NULL: there is none, or that was not this one. */
static inline PyObject *spare_context_for(PyObject *model)
{
    return model == spare_contexts_model ? spare_context_take() : NULL;
}

/* A copy, as a new reference. */
static inline PyObject *spare_context_copy(PyObject *context)
{
    PyObject *spare = spare_context_fits(context) ? spare_context_take() : NULL;

    return spare != NULL ? spare : PyContext_Copy(context);
}

/* A copy of the current context, as a new reference. */
static inline PyObject *spare_context_copy_current(void)
{
    PyObject *current = context_current();
    PyObject *spare = current != NULL && spare_context_fits(current) ? spare_context_take() : NULL;

    return spare != NULL ? spare : PyContext_CopyCurrent();
}

/* The caller's is the only reference: nobody can have entered it, nor ever see that it is used again. */
static inline int spare_context_wanted(PyObject *context)
{
    return Py_REFCNT(context) == 1 && spare_contexts_count < SPARE_CONTEXTS && PyContext_CheckExact(context)
           && spare_context_fits(context) && *(PyObject **)((char *)context + PyContext_Type.tp_weaklistoffset) == NULL;
}

/* Keeps the context if it is wanted. The caller gives up its reference afterwards.
 *
 * The garbage collector must not know it meanwhile. Where a task is freed because it is garbage, its context is on the
 * collector's list of what to clear, and would lose its variables afterwards, wherever it was then. */
static inline void spare_context_offer(PyObject *context)
{
    if (spare_context_wanted(context)) {
        PyObject_GC_UnTrack(context);
        spare_contexts[spare_contexts_count++] = Py_NewRef(context);
    }
}

/* The same, of a callback that has run: a ready queue had it, so it was no garbage. */
static inline void spare_context_put_down(PyObject *context)
{
    if (spare_context_at_hand != NULL)
        spare_context_offer(context);
    else if (spare_context_wanted(context))
        spare_context_at_hand = Py_NewRef(context);
}

#endif

#endif
