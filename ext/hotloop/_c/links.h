/* A circular, doubly linked list of tasks that costs a task two stores to enter and two to leave.
 *
 * It holds no references: a task leaves when it is done or freed. With the GIL nothing else guards it; without the GIL it
 * is not used (see task.pyx).
 */
#ifndef HOTLOOP_LINKS_H
#define HOTLOOP_LINKS_H

#include <Python.h>

typedef struct task_link {
    struct task_link *previous; /* NULL: in no list */
    struct task_link *next;
    PyObject *task; /* borrowed */
} task_link;

static task_link live_tasks = {&live_tasks, &live_tasks, NULL};

static inline void link_task(task_link *link, PyObject *task)
{
    link->task = task;
    link->previous = live_tasks.previous;
    link->next = &live_tasks;
    live_tasks.previous->next = link;
    live_tasks.previous = link;
}

static inline void unlink_task(task_link *link)
{
    if (link->previous == NULL)
        return;
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->previous = NULL;
}

/* The tasks that are alive, as new references; one whose last reference is gone already is on its way out. */
static inline PyObject *list_live_tasks(void)
{
    PyObject *tasks;
    task_link *link;

    /* Making a list may collect garbage, and so end tasks. Appending to it does not. */
    tasks = PyList_New(0);
    if (tasks == NULL)
        return NULL;
    for (link = live_tasks.next; link != &live_tasks; link = link->next) {
        if (Py_REFCNT(link->task) > 0 && PyList_Append(tasks, link->task) < 0) {
            Py_DECREF(tasks);
            return NULL;
        }
    }
    return tasks;
}

#endif
