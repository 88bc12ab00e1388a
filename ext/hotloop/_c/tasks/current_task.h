/* Sets asyncio's current task where CPython 3.14 and 3.15 keep it: in the thread state.
 *
 * asyncio.tasks._swap_current_task() exchanges one pointer, if another one beside it is the loop. As a Python-level
 * call with two arguments it costs more than all the rest of queueing and beginning a task's step. Both pointers lie
 * behind the public part of the thread state (`_PyThreadStateImpl` in pycore_tstate.h), not at the same distance in
 * each version. So current_task_find() searches for them once, when asyncio's own functions have put known objects
 * there. If it does not find them, and in versions that were not examined, everything goes through
 * _swap_current_task().
 *
 * Checked against CPython 3.14.10 (13 words behind the public part, the loop is word 4 and the task word 5) and 3.15.2
 * (26 words, 17 and 18). Of hotloop's other code, tasks_in_view.h alone uses the private part of the thread state.
 * CURRENT_TASK_IN_PLACE is the switch: built with -DCURRENT_TASK_IN_PLACE=0, this does not use it.
 *
 * Only their thread changes these pointers. asyncio.current_task(loop) of a loop that runs in another thread stops the
 * other threads to read them.
 */
#ifndef HOTLOOP_TASKS_CURRENT_TASK_H
#define HOTLOOP_TASKS_CURRENT_TASK_H

#include <Python.h>

#ifndef CURRENT_TASK_IN_PLACE
#define CURRENT_TASK_IN_PLACE (PY_VERSION_HEX >= 0x030E0000 && PY_VERSION_HEX < 0x03100000)
#endif

#if CURRENT_TASK_IN_PLACE

/* How many words behind the public part are searched: each version has at least that many. */
#if PY_VERSION_HEX < 0x030F0000
#define CURRENT_WORDS 11
#else
#define CURRENT_WORDS 24
#endif

static int current_loop_word = -1, current_task_word = -1; /* -1: not known */

static inline PyObject **current_words(void) { return (PyObject **)(PyThreadState_GetUnchecked() + 1); }

/* The word that holds `object`, or -1. */
static inline int current_word_of(PyObject *object)
{
    PyObject **words = current_words();
    int word;

    for (word = 0; word < CURRENT_WORDS; word++)
        if (words[word] == object)
            return word;
    return -1;
}

/* To be called while `loop` is running and `task` is its current task. Returns whether it has found both. */
static inline int current_task_find(PyObject *loop, PyObject *task)
{
    current_loop_word = current_word_of(loop);
    current_task_word = current_word_of(task);
    return current_loop_word >= 0 && current_task_word >= 0;
}

/* Search again, with another task. From now on current_task_set() uses the words, if they are the same as before. */
static inline void current_task_confirm(PyObject *loop, PyObject *task)
{
    if (current_loop_word != current_word_of(loop) || current_task_word != current_word_of(task))
        current_loop_word = current_task_word = -1;
}

/* Whether the words were found, so that current_task_set() can work. */
static inline int current_task_known(void) { return current_task_word >= 0; }

/* Make `task` (NULL: none) the current one. Returns 0 if the caller must call _swap_current_task(), which may raise. */
static inline int current_task_set(PyObject *loop, PyObject *task)
{
    PyObject **words, *before;

    if (current_task_word < 0)
        return 0;
    words = current_words();
    if (words[current_loop_word] != loop)
        return 0;
    before = words[current_task_word];
    words[current_task_word] = Py_XNewRef(task);
    Py_XDECREF(before);
    return 1;
}

/* Whether current_task_get() can tell the current task of `loop`: the words are known, and the loop runs in this
 * thread. */
static inline int current_task_readable(PyObject *loop)
{
    return current_task_word >= 0 && current_words()[current_loop_word] == loop;
}

/* The current task, borrowed; NULL: there is none. */
static inline PyObject *current_task_get(void) { return current_words()[current_task_word]; }

#else

static inline int current_task_known(void) { return 0; }

static inline PyObject *current_task_get(void) { return NULL; }

static inline int current_task_readable(PyObject *loop)
{
    (void)loop;
    return 0;
}

static inline int current_task_find(PyObject *loop, PyObject *task)
{
    (void)loop;
    (void)task;
    return 0;
}

static inline void current_task_confirm(PyObject *loop, PyObject *task)
{
    (void)loop;
    (void)task;
}

static inline int current_task_set(PyObject *loop, PyObject *task)
{
    (void)loop;
    (void)task;
    return 0;
}

#endif

#endif
