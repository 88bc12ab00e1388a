/* Memory that holds references to objects, for classes whose own tp_traverse and tp_clear see to them.
 *
 * A Python list would do without these. But the garbage collector clears a list, and a program finds it by
 * gc.get_referents(): what remembers an index would then read beyond its end.
 */
#ifndef HOTLOOP_RUNTIME_SLOTS_H
#define HOTLOOP_RUNTIME_SLOTS_H

#include <Python.h>

/* For a tp_traverse. Free slots hold NULL. */
static inline int slots_visit(PyObject *const *slots, Py_ssize_t size, visitproc visit, void *arg)
{
    Py_ssize_t index;

    for (index = 0; index < size; index++)
        Py_VISIT(slots[index]);
    return 0;
}

#endif
