/* A circular, doubly linked list of tasks: adding a task and removing it each cost its neighbours two stores.
 *
 * It holds no references: a task is removed when it is done or freed. The GIL guards it; builds without the GIL do not
 * use it (see task.pyx).
 *
 * From 3.14 on the list is empty in a forked child, as asyncio's is: the tasks are the parent's.
 */
#ifndef HOTLOOP_TASKS_LIVE_TASKS_H
#define HOTLOOP_TASKS_LIVE_TASKS_H

#include <Python.h>

#include "system/fork.h"

typedef struct task_link {
    struct task_link *previous; /* NULL: not in the list */
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

/* A new list of the tasks, without those whose last reference is gone: they are being freed. */
static inline PyObject *list_live_tasks(void)
{
    PyObject *tasks;
    task_link *link;

    /* Making a list may run the garbage collector, and thus remove tasks. Appending to it does not. */
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
