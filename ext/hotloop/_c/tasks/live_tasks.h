/* A circular, doubly linked list of tasks that costs a task two stores to enter and two to leave.
 *
 * It holds no references: a task leaves when it is done or freed. With the GIL nothing else guards it; without the GIL it
 * is not used (see task.pyx).
 *
 * From 3.14 on a forked child begins with an empty list, as asyncio's: the tasks are the parent's.
 */
#ifndef HOTLOOP_TASKS_LIVE_TASKS_H
#define HOTLOOP_TASKS_LIVE_TASKS_H

#include <Python.h>

#include "system/fork.h"

typedef struct task_link {
    struct task_link *previous; /* NULL: in no list */
    struct task_link *next;
    PyObject *task; /* borrowed */
} task_link;

static task_link live_tasks = {&live_tasks, &live_tasks, NULL};

static inline void unlink_task(task_link *link)
{
    if (link->previous == NULL)
        return;
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->previous = NULL;
}

static inline void forget_parents_tasks(void)
{
#if PY_VERSION_HEX >= 0x030E0000
    static unsigned int generation = 0;

    if (generation == fork_generation())
        return;
    generation = fork_generation();
    while (live_tasks.next != &live_tasks)
        unlink_task(live_tasks.next);
#endif
}

static inline void link_task(task_link *link, PyObject *task)
{
    forget_parents_tasks();
    link->task = task;
    link->previous = live_tasks.previous;
    link->next = &live_tasks;
    live_tasks.previous->next = link;
    live_tasks.previous = link;
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
    forget_parents_tasks();
    for (link = live_tasks.next; link != &live_tasks; link = link->next) {
        if (Py_REFCNT(link->task) > 0 && PyList_Append(tasks, link->task) < 0) {
            Py_DECREF(tasks);
            return NULL;
        }
    }
    return tasks;
}

#endif
