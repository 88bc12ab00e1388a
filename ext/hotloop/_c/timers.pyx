"""Timers: a binary heap by deadline, and among equal deadlines by age.

A cancelled timer leaves the heap at once: each handle knows its place. The usual timeout is cancelled soon after it was
set, while it is still near the bottom, so that removing it moves next to nothing; nothing dead stays behind, and no
compaction is needed. The heap is a real list, because `loop._scheduled` is read, and changed with heapq, by others: so
a handle's place is a hint that is checked before use.
"""

cimport cython
from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from libc.math cimport INFINITY

from hotloop._c.ready cimport Handle, ReadyQueue, push

cdef extern from "quiet.h":
    pass

import asyncio

cdef extern from *:
    """
    /* Moves a pointer to another slot: no reference changes hands, as the slots are permuted. */
    static inline void place(PyObject *list, Py_ssize_t index, PyObject *item)
    {
        PyList_SET_ITEM(list, index, item);
    }
    """
    void place(list heap, Py_ssize_t index, PyObject *item)


cdef extern from *:
    """
    #include "pool.h"
    POOL(TimerHandle)
    """
    void pool_install_TimerHandle(PyTypeObject *)


cdef inline TimerHandle timer_at(list heap, Py_ssize_t index):
    cdef PyObject *item = PyList_GET_ITEM(heap, index)
    if type(<object>item) is not TimerHandle:
        raise TypeError(f"a hotloop TimerHandle was expected in loop._scheduled, not {type(<object>item).__name__}")
    return <TimerHandle>item


cdef inline bint earlier(TimerHandle one, TimerHandle other) noexcept:
    return one.deadline < other.deadline or (one.deadline == other.deadline and one.order < other.order)


cdef int sift_up(list heap, Py_ssize_t index) except -1:
    """Move the handle at `index` towards the root until its parent is earlier."""
    cdef TimerHandle handle = timer_at(heap, index), parent
    cdef Py_ssize_t above
    while index > 0:
        above = (index - 1) >> 1
        parent = timer_at(heap, above)
        if not earlier(handle, parent):
            break
        place(heap, index, <PyObject *>parent)
        place(heap, above, <PyObject *>handle)
        parent.index = index
        index = above
    handle.index = index
    return 0


cdef int sift_down(list heap, Py_ssize_t index) except -1:
    """Move the handle at `index` away from the root until both children are later."""
    cdef TimerHandle handle = timer_at(heap, index), child, sibling
    cdef Py_ssize_t below
    while True:
        below = 2 * index + 1
        if below >= PyList_GET_SIZE(heap):
            break
        child = timer_at(heap, below)
        if below + 1 < PyList_GET_SIZE(heap):
            sibling = timer_at(heap, below + 1)
            if earlier(sibling, child):
                child = sibling
                below += 1
        if not earlier(child, handle):
            break
        place(heap, index, <PyObject *>child)
        place(heap, below, <PyObject *>handle)
        child.index = index
        index = below
    handle.index = index
    return 0


cdef TimerHandle take(list heap, Py_ssize_t index):
    """Remove and return the handle at `index`."""
    cdef TimerHandle handle = timer_at(heap, index)
    cdef TimerHandle last = heap.pop()
    if last is not handle:
        heap[index] = last
        last.index = index
        sift_down(heap, index)
        sift_up(heap, last.index)
    handle.index = -1
    handle.timers = None
    return handle


cdef class TimerQueue:
    """The pending timers of one loop."""

    def __cinit__(self):
        self.heap = []

    def __len__(self):
        return len(self.heap)

    cdef int push(self, TimerHandle handle) except -1:
        cdef Py_ssize_t index = PyList_GET_SIZE(self.heap)
        if handle.deadline != handle.deadline:
            # A NaN is due at once, as in asyncio, but must not upset the order of the others as it does there.
            handle.deadline = -INFINITY
        handle.order = self.pushed
        self.pushed += 1
        self.heap.append(handle)
        handle.timers = self
        return sift_up(self.heap, index)

    cdef int remove(self, TimerHandle handle) except -1:
        """Take a cancelled handle out. If somebody has rearranged the list, it is left for expire() to drop."""
        cdef Py_ssize_t index = handle.index
        if 0 <= index < PyList_GET_SIZE(self.heap) and PyList_GET_ITEM(self.heap, index) == <PyObject *>handle:
            take(self.heap, index)
        return 0

    cdef int expire(self, double now, ReadyQueue ready) except -1:
        """Queue every handle whose deadline has come, by deadline."""
        cdef TimerHandle handle
        while PyList_GET_SIZE(self.heap):
            # Never early by the loop's own clock.
            if timer_at(self.heap, 0).deadline > now:
                break
            handle = take(self.heap, 0)
            if not handle.dropped:
                push(ready, handle)
        return 0

    cdef double next_deadline(self) except? -1:
        """The earliest deadline; the caller knows that there is one."""
        return timer_at(self.heap, 0).deadline


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context):
    """A TimerHandle as call_at() makes one, outside debug mode."""
    cdef TimerHandle handle = TimerHandle.__new__(TimerHandle)
    handle.callback = callback
    handle.args = args
    handle.loop = loop
    handle.context = PyContext_CopyCurrent() if context is None else context
    handle.deadline = deadline
    return handle


@cython.final
cdef class TimerHandle(Handle):
    """A callback that is due at a point in time, as call_later() and call_at() return it. See asyncio.TimerHandle."""

    def __cinit__(self, *args, **kwargs):
        self.index = -1

    def __init__(self, when, callback, args, loop, context=None):
        super().__init__(callback, args, loop, context)
        self.deadline = when
        if type(when) is not float:
            self.given = when

    @property
    def __class__(self):
        return asyncio.TimerHandle

    def cancel(self):
        """Make sure that the callback will not be called. Idempotent."""
        if not self.dropped:
            if self.timers is not None:
                self.timers.remove(self)
            else:
                self.loop._timer_handle_cancelled(self)
        self.cancel_now()

    def when(self):
        """The deadline in seconds, by loop.time()."""
        return self._when

    @property
    def _when(self):
        return self.deadline if self.given is None else self.given

    @property
    def _scheduled(self):
        return self.timers is not None

    @_scheduled.setter
    def _scheduled(self, value):
        if not value:
            self.timers = None
            self.index = -1

    def _repr_info(self):
        info = super()._repr_info()
        info.insert(2 if self.dropped else 1, f"when={self._when}")
        return info

    def __hash__(self):
        return hash(self.deadline)

    def __lt__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self.deadline < other._when
        return NotImplemented

    def __le__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self.deadline < other._when or self == other
        return NotImplemented

    def __gt__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self.deadline > other._when
        return NotImplemented

    def __ge__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self.deadline > other._when or self == other
        return NotImplemented

    def __eq__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return (
                self.deadline == other._when
                and self.callback == other._callback
                and self.args == other._args
                and self.dropped == other._cancelled
            )
        return NotImplemented


pool_install_TimerHandle(<PyTypeObject *>TimerHandle)
