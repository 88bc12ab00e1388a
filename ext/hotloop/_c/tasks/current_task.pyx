"""Sets, and tells, the task that asyncio.current_task() returns.

The documented way for a third-party Task is to call asyncio.tasks._enter_task() and _leave_task() in each step. The
cheaper way depends on where Python keeps the current task: up to 3.13 in a dict that asyncio shares (`_current_tasks`),
from 3.14 on in the thread state, which current_task.h sets, or else `_swap_current_task()`.
"""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject

import asyncio.tasks
import sys
from asyncio import events

cdef extern from "tasks/current_task.h":
    bint current_task_find(object loop, object task)
    void current_task_confirm(object loop, object task)
    bint current_task_set(PyObject *loop, PyObject *task)
    bint current_task_known()
    bint current_task_readable(PyObject *loop)
    PyObject *current_task_get()

cdef bint in_thread_state = sys.version_info >= (3, 14)
cdef dict current_tasks = None if in_thread_state else asyncio.tasks._current_tasks
cdef object asyncio_current_task = asyncio.tasks.current_task
cdef object swap_current_task = getattr(asyncio.tasks, "_swap_current_task", None)


cdef int find_current_task() except -1:
    """Find where the thread state holds the current task, by means of a false loop and false tasks. No Python code sees
    them, because none runs in the meantime."""
    cdef object running = events._get_running_loop()
    cdef object loop = object(), first = object(), second = object()
    cdef object task
    events._set_running_loop(loop)
    try:
        task = swap_current_task(loop, first)
        try:
            if current_task_find(loop, first):
                swap_current_task(loop, second)
                current_task_confirm(loop, second)
        finally:
            swap_current_task(loop, task)
    finally:
        events._set_running_loop(running)
    return 0


def is_set_directly():
    """True if the current task is set without a call of asyncio's functions. For tests."""
    return bool(current_task_known())


cdef int enter_task(object loop, object task) except -1:
    """Make `task` the current one of `loop`, whichever task was before."""
    if current_task_set(<PyObject *>loop, <PyObject *>task):
        return 0
    if in_thread_state:
        swap_current_task(loop, task)
    else:
        PyDict_SetItem(current_tasks, loop, task)
    return 0


cdef int leave_task(object loop, object task) except -1:
    """Make no task the current one of `loop`. Up to Python 3.13 only if the current one is `task`."""
    if current_task_set(<PyObject *>loop, NULL):
        return 0
    if in_thread_state:
        swap_current_task(loop, None)
    elif PyDict_GetItemWithError(current_tasks, loop) == <PyObject *>task:
        PyDict_DelItem(current_tasks, loop)
    return 0


cdef object swap_task(object loop, object task):
    """Make `task` (None: no task) the current one; return the one before, or None. For eager tasks, from 3.12 on."""
    return swap_current_task(loop, task)


cdef object current_task(object loop):
    """asyncio.current_task(loop), or None."""
    cdef PyObject *found
    if current_task_readable(<PyObject *>loop):
        found = current_task_get()
    elif in_thread_state:
        return asyncio_current_task(loop)
    else:
        found = PyDict_GetItemWithError(current_tasks, loop)
    return None if found == NULL else <object>found


if in_thread_state:
    find_current_task()
