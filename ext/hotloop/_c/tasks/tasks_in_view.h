/* Lets tools outside the process see the tasks: `python -m asyncio ps`, samplers and debuggers.
 *
 * CPython 3.14 and 3.15 publish for them where an asyncio.Task has its name, its coroutine, the task that waits for it
 * and its link in a list of all tasks, and where each thread state has the head of that list (`_AsyncioDebug` in
 * Modules/_asynciomodule.c). A Task of ours has these fields at the same offsets, and joins the list of its thread:
 * future_core.pxd and task_core.pxd declare them in that order. The interpreter's own code follows only the links, when
 * asyncio.all_tasks() copies the lists and when a thread ends, and of a task not exactly of its own type it then calls
 * the methods.
 *
 * asyncio_layout.pyx checks all that on an asyncio.Task made for it, before the first task joins. If anything is not as
 * expected, and in versions that were not examined, the tasks form a list of their own (live_tasks.h).
 * TASKS_IN_VIEW is the switch: built with -DTASKS_IN_VIEW=0, they do so as well.
 *
 * Checked against CPython 3.14.10 and 3.15.2. Without the GIL the list has owners and locks, and other offsets.
 */
#ifndef HOTLOOP_TASKS_TASKS_IN_VIEW_H
#define HOTLOOP_TASKS_TASKS_IN_VIEW_H

#include <Python.h>
#include <stddef.h>
#include <string.h>

#ifndef TASKS_IN_VIEW
#if PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x03100000 && !defined(Py_GIL_DISABLED)                          \
    && PYLONG_BITS_IN_DIGIT == 30
#define TASKS_IN_VIEW 1
#else
#define TASKS_IN_VIEW 0
#endif
#endif

/* As `struct llist_node` of the interpreter. */
typedef struct task_link {
    struct task_link *next;
    struct task_link *previous; /* NULL: in no list */
} task_link;

/* Take it out of its list, if it is in one. */
static inline void unlink_task(task_link *link)
{
    if (link->previous == NULL)
        return;
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->previous = link->next = NULL;
}

/* The number of a task that has no name, in the form of a Python int: the tools make "Task-<number>" of it. It is part
 * of the task, and no Python code gets hold of it. */
typedef struct {
    PyObject_HEAD
    uintptr_t tag; /* eight times the number of digits */
    uint32_t digits[2];
} task_number;

#define NUMBER_BITS 30 /* of a digit */

/* Called once for each task; it keeps its type when it is used again. */
static inline void task_number_init(task_number *number) { Py_SET_TYPE((PyObject *)number, &PyLong_Type); }

static inline void task_number_set(task_number *number, unsigned long long value)
{
    number->digits[0] = (uint32_t)(value & ((1u << NUMBER_BITS) - 1));
    number->digits[1] = (uint32_t)(value >> NUMBER_BITS);
    number->tag = number->digits[1] ? 2 << 3 : 1 << 3;
}

static inline unsigned long long task_number_get(const task_number *number)
{
    return (unsigned long long)number->digits[1] << NUMBER_BITS | number->digits[0];
}

/* Where a Task has what the tools read. */
typedef struct {
    size_t awaited_by, state, is_task, awaited_by_is_set, coroutine, name, link;
} view_offsets;

#if TASKS_IN_VIEW

/* How many words behind the public part of the thread state are searched: each version has at least that many. */
#define VIEW_WORDS (PY_VERSION_HEX < 0x030F0000 ? 11 : 24)

static inline char *view_words(void) { return (char *)(PyThreadState_GetUnchecked() + 1); }

/* The head of the thread's list of tasks, which is the `word`th of them. */
static inline task_link *view_list(int word) { return (task_link *)(view_words() + word * (int)sizeof(void *)); }

#define POINTER_AT(object, offset) (*(void **)((char *)(object) + (offset)))
#define BYTE_AT(object, offset) (*((char *)(object) + (offset)))

/* Whether `task`, a pending asyncio.Task that nothing waits for, has its fields where ours have them. */
static inline int view_fits(const view_offsets *ours, PyObject *task, PyObject *coroutine, PyObject *name)
{
    return (size_t)Py_TYPE(task)->tp_basicsize >= ours->link + sizeof(task_link)
           && POINTER_AT(task, ours->coroutine) == coroutine && POINTER_AT(task, ours->name) == name
           && POINTER_AT(task, ours->awaited_by) == NULL && *(int *)((char *)task + ours->state) == 0
           && BYTE_AT(task, ours->is_task) == 1 && BYTE_AT(task, ours->awaited_by_is_set) == 0;
}

/* Whether it is waited for by `waiter`, and by nothing else. */
static inline int view_fits_waiter(const view_offsets *ours, PyObject *task, PyObject *waiter)
{
    return POINTER_AT(task, ours->awaited_by) == waiter && BYTE_AT(task, ours->awaited_by_is_set) == 0
           && BYTE_AT(waiter, ours->is_task) == 0;
}

/* Whether it is waited for by several, which form a set. */
static inline int view_fits_waiters(const view_offsets *ours, PyObject *task)
{
    return BYTE_AT(task, ours->awaited_by_is_set) == 1 && PyAnySet_CheckExact(POINTER_AT(task, ours->awaited_by));
}

/* Whether a Python int of two digits has the form of a task_number. */
static inline int view_fits_number(PyObject *number, unsigned long long value)
{
    task_number ours;

    task_number_set(&ours, value);
    return memcmp((char *)number + offsetof(task_number, tag), &ours.tag, sizeof(ours) - offsetof(task_number, tag))
           == 0;
}

/* The number of the word with the list that `task`, the latest in this thread, is in; -1 if that is no list in the
 * thread state. */
static inline int view_find_list(const view_offsets *ours, PyObject *task)
{
    task_link *link = (task_link *)((char *)task + ours->link);
    ptrdiff_t distance = (char *)link->next - view_words(), word = (ptrdiff_t)sizeof(void *);

    if (distance < 0 || distance % word != 0 || distance / word > VIEW_WORDS - 2)
        return -1;
    if (link->next->previous != link || link->previous->next != link)
        return -1;
    return (int)(distance / word);
}

#else

static inline task_link *view_list(int word)
{
    (void)word;
    return NULL;
}

static inline int view_fits(const view_offsets *ours, PyObject *task, PyObject *coroutine, PyObject *name)
{
    (void)ours, (void)task, (void)coroutine, (void)name;
    return 0;
}

static inline int view_fits_waiter(const view_offsets *ours, PyObject *task, PyObject *waiter)
{
    (void)ours, (void)task, (void)waiter;
    return 0;
}

static inline int view_fits_waiters(const view_offsets *ours, PyObject *task)
{
    (void)ours, (void)task;
    return 0;
}

static inline int view_fits_number(PyObject *number, unsigned long long value)
{
    (void)number, (void)value;
    return 0;
}

static inline int view_find_list(const view_offsets *ours, PyObject *task)
{
    (void)ours, (void)task;
    return -1;
}

#endif

#endif
