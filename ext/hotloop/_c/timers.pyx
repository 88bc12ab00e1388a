"""Timers: a binary heap by deadline, and among equal deadlines by age.

A cancelled timer leaves the heap at once: each handle knows its place. The usual timeout is cancelled soon after it was
set, while it is still near the bottom, so that removing it moves next to nothing; nothing dead stays behind, and no
compaction is needed.
"""

from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_SET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport INFINITY

from hotloop._c.ready cimport Handle, ReadyQueue
from hotloop._c.ready cimport push as push_ready

cdef extern from "quiet.h":
    pass

import asyncio

cdef extern from "timer_heap.h":
    int timer_heap_push(timer_heap *, double deadline, timer_place *)
    void timer_heap_remove(timer_heap *, timer_place *)
    void timer_heap_free(timer_heap *)

cdef extern from *:
    """
    #include "pool.h"
    /* Timers come in crowds: a server has one for every connection. */
    POOL(TimerHandle, 16384)
    """
    void pool_install_TimerHandle(PyTypeObject *)


cdef inline void put(list handles, Py_ssize_t slot, object handle) noexcept:
    """handles[slot] = handle"""
    cdef PyObject *before = PyList_GET_ITEM(handles, slot)
    Py_INCREF(handle)
    PyList_SET_ITEM(handles, slot, handle)
    Py_DECREF(<object>before)


cdef class TimerQueue:
    """The pending timers of one loop."""

    def __cinit__(self):
        self.handles = []

    def __dealloc__(self):
        timer_heap_free(&self.heap)

    cdef int push(self, TimerHandle handle) except -1:
        cdef double deadline = handle.deadline
        if deadline != deadline:
            # A NaN is due at once, as in asyncio, but must not upset the order of the others as it does there.
            deadline = -INFINITY
        handle.place.timer = <PyObject *>handle
        if timer_heap_push(&self.heap, deadline, &handle.place) < 0:
            raise MemoryError()
        handle.timers = self
        handle.slot = self.heap.count - 1
        if handle.slot < PyList_GET_SIZE(self.handles):
            put(self.handles, handle.slot, handle)
        else:
            self.handles.append(handle)
        return 0

    cdef int remove(self, TimerHandle handle) except -1:
        cdef PyObject *last
        timer_heap_remove(&self.heap, &handle.place)
        last = PyList_GET_ITEM(self.handles, self.heap.count)
        (<TimerHandle>last).slot = handle.slot
        put(self.handles, handle.slot, <object>last)
        put(self.handles, self.heap.count, None)
        handle.timers = None
        return 0

    cdef int expire(self, double now, ReadyQueue ready) except -1:
        """Queue every handle whose deadline has come, by deadline; never early by the loop's own clock."""
        cdef TimerHandle handle
        while self.heap.count and self.heap.entries[0].deadline <= now:
            handle = <TimerHandle>self.heap.entries[0].place.timer
            self.remove(handle)
            push_ready(ready, handle)
        return 0

    cdef int clear(self) except -1:
        """Drop all handles."""
        cdef list handles = self.handles
        self.handles = []
        for handle in handles:
            if handle is not None:
                (<TimerHandle>handle).timers = None
        timer_heap_free(&self.heap)
        return 0

    cdef list in_order(self):
        """The pending handles as heapq keeps them, in a list of its own."""
        return [<object>self.heap.entries[index].place.timer for index in range(self.heap.count)]


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context):
    """A TimerHandle as call_at() makes one, outside debug mode."""
    cdef TimerHandle handle = TimerHandle.__new__(TimerHandle)
    handle.callback = callback
    handle.args = args
    handle.loop = loop
    handle.context = PyContext_CopyCurrent() if context is None else context
    handle.deadline = deadline
    return handle


cdef class TimerHandle(Handle):
    """A callback that is due at a point in time, as call_later() and call_at() return it. See asyncio.TimerHandle."""

    def __init__(self, when, callback, args, loop, context=None):
        super().__init__(callback, args, loop, context)
        self.deadline = when
        if type(when) is not float:
            self.given = when

    @property
    def __class__(self):
        return asyncio.TimerHandle

    cdef int withdraw(self) except -1:
        if self.timers is not None:
            self.timers.remove(self)
        return 0

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
        if not value and self.timers is not None:
            self.timers.remove(self)

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
