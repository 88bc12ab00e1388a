/* A circular, doubly linked list of tasks: adding a task and removing it each cost its neighbours two stores.
 *
 * It holds no references: a task is removed when it is done or freed. The GIL guards it; builds without the GIL do not
 * use it (see task.pyx). It is asyncio's own list of the thread where tasks_in_view.h allows that, else ours of all
 * threads.
 *
 * From 3.14 on ours is empty in a forked child, as asyncio's is: the tasks are the parent's.
 */
#ifndef HOTLOOP_TASKS_LIVE_TASKS_H
#define HOTLOOP_TASKS_LIVE_TASKS_H

#include <Python.h>

#include "system/fork.h"
#include "tasks/tasks_in_view.h"

/* Our list. */
static task_link live_tasks = {&live_tasks, &live_tasks};

/* Where the thread's state has asyncio's list; -1: the tasks are on ours. */
static int view_head_word = -1;

static inline void join_asyncios_list(int word) { view_head_word = word; }

/* The list that a new task joins. */
static inline task_link *task_list(void) { return view_head_word < 0 ? &live_tasks : view_list(view_head_word); }

static inline void forget_parents_tasks(void)
{
#if PY_VERSION_HEX >= 0x030E0000
    static unsigned int forks_known = 0;

    if (forks_known == fork_count())
        return;
    forks_known = fork_count();
    while (live_tasks.next != &live_tasks)
        unlink_task(live_tasks.next);
#endif
}

static inline void link_task(task_link *link)
{
    task_link *head = task_list();

    if (head == &live_tasks)
        forget_parents_tasks();
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}

/* A new Python list of the tasks in our list, without those whose last reference is gone: they are being freed.
 * `offset`: where a task has its link. */
static inline PyObject *list_live_tasks(size_t offset)
{
    PyObject *tasks, *task;
    task_link *link;

    /* Making a list may run the garbage collector, and thus remove tasks. Appending to it does not. */
    tasks = PyList_New(0);
    if (tasks == NULL)
        return NULL;
    forget_parents_tasks();
    for (link = live_tasks.next; link != &live_tasks; link = link->next) {
        task = (PyObject *)((char *)link - offset);
        if (Py_REFCNT(task) > 0 && PyList_Append(tasks, task) < 0) {
            Py_DECREF(tasks);
            return NULL;
        }
    }
    return tasks;
}

#endif
