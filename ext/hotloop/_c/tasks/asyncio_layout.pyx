"""Whether asyncio's own tasks are made as ours are, so that ours can join its list of tasks: see tasks_in_view.h."""

from cpython.object cimport PyObject

from hotloop._asyncio.unrun_task import UnrunTask

cdef extern from "tasks/tasks_in_view.h":
    bint view_fits(view_offsets *, PyObject *task, PyObject *coroutine, PyObject *name) noexcept
    bint view_fits_waiter(view_offsets *, PyObject *task, PyObject *waiter) noexcept
    bint view_fits_waiters(view_offsets *, PyObject *task) noexcept
    bint view_fits_number(PyObject *, unsigned long long) noexcept
    int view_find_list(view_offsets *, PyObject *task) noexcept


cdef int find_asyncios_list(view_offsets *ours) except -2:
    """Where the state of a thread has asyncio's list of its tasks: the number of a word. -1 if this Python's tasks are
    not as expected. `ours`: where our tasks have what tools read."""
    cdef object unrun, task
    try:
        unrun = UnrunTask()
        try:
            task = unrun.task
            return view_find_list(ours, <PyObject *>task) if fits(ours, unrun) else -1
        finally:
            unrun.close()
    except (ImportError, AttributeError):
        return -1


cdef bint fits(view_offsets *ours, object unrun) except -1:
    cdef object task = unrun.task, coroutine = unrun.coroutine, name = unrun.name, waiter
    cdef object number = 1 << 40 | 1
    if not view_fits(ours, <PyObject *>task, <PyObject *>coroutine, <PyObject *>name):
        return False
    waiter = unrun.add_waiter()
    if not view_fits_waiter(ours, <PyObject *>task, <PyObject *>waiter):
        return False
    unrun.add_waiter()
    return view_fits_waiters(ours, <PyObject *>task) and view_fits_number(<PyObject *>number, number)
