/* Contexts without variables that nobody has any more, kept as they are for the next callbacks and tasks.
 *
 * Each callback and each task gets a copy of the current context to run in. Most of them find no variable set, set none, and
 * nobody asks for the context: it is then freed exactly as it was made. Making and freeing it is a tenth of what a callback
 * costs. One that holds a variable is never kept, so no value lives longer than without this.
 *
 * context.h says how a context is known to be without variables; where that cannot be told, nothing is kept.
 */
#ifndef HOTLOOP_SPARE_CONTEXTS_H
#define HOTLOOP_SPARE_CONTEXTS_H

#include "context.h"

#ifdef Py_GIL_DISABLED

static inline PyObject *spare_context_copy_current(void) { return PyContext_CopyCurrent(); }

static inline void spare_context_offer(PyObject *context) { (void)context; }

#else

#define SPARE_CONTEXTS 1024

static PyObject *spare_contexts[SPARE_CONTEXTS]; /* owned */
static int spare_contexts_count = 0;

/* A copy of the current context, as a new reference. */
static inline PyObject *spare_context_copy_current(void)
{
    if (spare_contexts_count && context_current_is_blank())
        return spare_contexts[--spare_contexts_count];
    return PyContext_CopyCurrent();
}

/* Keeps the context if the caller's is the only reference: nobody can have entered it, nor ever see that it is used again. */
static inline void spare_context_offer(PyObject *context)
{
    if (Py_REFCNT(context) == 1 && spare_contexts_count < SPARE_CONTEXTS && PyContext_CheckExact(context)
        && context_is_blank(context) && *(PyObject **)((char *)context + PyContext_Type.tp_weaklistoffset) == NULL)
        spare_contexts[spare_contexts_count++] = Py_NewRef(context);
}

#endif

#endif
