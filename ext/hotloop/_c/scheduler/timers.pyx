"""TimerHandle, and the queue of pending timers: a heap by deadline, then by age (timer_heap.h).

Most timeouts are cancelled, so the queue drops a cancelled timer at once; only its key in the heap stays behind.
"""

cimport cython
from cpython.contextvars cimport PyContext_CopyCurrent
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_SET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport INFINITY

from hotloop._c.runtime.locking cimport FREE_THREADED, object_section, published_size, section_enter, section_leave
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, make_room, queued
from hotloop._c.scheduler.ready_queue cimport push as push_ready

import asyncio

cdef extern from "scheduler/timer_heap.h":
    Py_ssize_t timer_heap_push(timer_heap *, double deadline)
    void timer_heap_cancel(timer_heap *, Py_ssize_t slot)
    void timer_heap_sort_due(timer_heap *, double now)
    void timer_heap_prefetch(const timer_heap *, PyObject *handles)
    void timer_heap_pop(timer_heap *)
    void timer_heap_clear(timer_heap *)

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """
    void free_memory_install(PyTypeObject *)

cdef extern from "runtime/context_cache.h":
    bint context_comparable
    bint context_is_like_current(PyObject *context)
    bint context_is_blank(PyObject *context)
    int context_cache_install() except -1


# A queue that a burst has grown beyond this frees its memory once it is empty.
cdef Py_ssize_t RETAINED_SLOTS = 65536


cdef inline void set_slot(list handles, Py_ssize_t slot, object handle) noexcept:
    """handles[slot] = handle"""
    cdef PyObject *before = PyList_GET_ITEM(handles, slot)
    Py_INCREF(handle)
    PyList_SET_ITEM(handles, slot, handle)
    Py_DECREF(<object>before)


cdef inline void mark_not_pending(TimerQueue queue, TimerHandle handle) noexcept:
    """The handle is no longer pending. Its slot must be free by now, because this may run code: see
    unshare_context()."""
    handle.timers = None
    unshare_context(queue, handle)


cdef inline void unshare_context(TimerQueue queue, TimerHandle handle) noexcept:
    """Drop the shared context when no pending handle needs it, so that values of context variables live no longer than
    those handles. Dropping a value may run its finalizer, which may set and cancel timers."""
    if handle.context_shared and handle.context is queue.snapshot:
        queue.sharing -= 1
        if queue.sharing == 0 and not context_is_blank(<PyObject *>queue.snapshot):
            queue.snapshot = None


cdef inline int insert_in_section(TimerQueue queue, TimerHandle handle, double deadline) except -1:
    """TimerQueue.insert() for a caller that has entered the queue's critical section. Up to CPython 3.13, entering it
    once more would give it up for a moment."""
    cdef Py_ssize_t slot
    if deadline != deadline:
        # A NaN is due at once, as in asyncio, but must not disturb the order of the others, as it does there.
        deadline = -INFINITY
    if queue.heap.free_count == 0 and queue.heap.slots == PyList_GET_SIZE(queue.handles):
        # Before the key is pushed, because this may fail for lack of memory: no key may be without a handle.
        queue.handles.append(None)
    slot = timer_heap_push(&queue.heap, deadline)
    if slot < 0:
        raise MemoryError()
    handle.slot = slot
    handle.timers = queue
    set_slot(queue.handles, slot, handle)
    return 0


@cython.no_gc_clear
cdef class TimerQueue:
    """The pending timers of one loop."""

    def __cinit__(self):
        self.handles = []

    def __dealloc__(self):
        timer_heap_clear(&self.heap)

    cdef int push(self, TimerHandle handle) except -1:
        if handle.context is not None:
            return self.insert(handle, handle.deadline)
        # First, because making a context may run the garbage collector, and thus a finalizer that sets a timer.
        self.share_context(handle)
        try:
            return self.insert(handle, handle.deadline)
        except MemoryError:
            unshare_context(self, handle)
            raise

    cdef int insert(self, TimerHandle handle, double deadline) except -1:
        """Add a handle to the heap. Nothing in here runs other code, so the slot that is found free stays free."""
        cdef object_section section
        section_enter(&section, self)
        try:
            insert_in_section(self, handle, deadline)
        finally:
            section_leave(&section)
        return 0

    cdef int move(self, TimerHandle handle, double deadline) except -1:
        """Give a pending handle another deadline."""
        cdef Py_ssize_t before
        cdef object_section section
        section_enter(&section, self)
        try:
            if handle.timers is self:
                before = handle.slot
                insert_in_section(self, handle, deadline)
                timer_heap_cancel(&self.heap, before)
                set_slot(self.handles, before, None)
        finally:
            section_leave(&section)
        return 0

    cdef int share_context(self, TimerHandle handle) except -1:
        """Give a new handle a copy of the current context; the previous handles' copy, if that is still the same."""
        cdef object context
        if not context_comparable:
            handle.context = PyContext_CopyCurrent()
            return 0
        if self.snapshot is None or not context_is_like_current(<PyObject *>self.snapshot):
            context = PyContext_CopyCurrent()
            # The old snapshot is dropped on return: finalizers of the values in it may set timers.
            self.snapshot, context = context, self.snapshot
            self.sharing = 0
        handle.context = self.snapshot
        handle.context_shared = True
        self.sharing += 1
        return 0

    cdef int remove(self, TimerHandle handle) except -1:
        cdef object_section section
        section_enter(&section, self)
        if FREE_THREADED and handle.timers is not self:
            # Another thread was faster.
            section_leave(&section)
            return 0
        timer_heap_cancel(&self.heap, handle.slot)
        set_slot(self.handles, handle.slot, None)
        mark_not_pending(self, handle)
        section_leave(&section)
        return 0

    cdef double expire(self, double now, ReadyQueue ready) except? -1:
        """Queue every handle whose deadline is at most `now`, the earliest first. Returns the earliest of their
        deadlines; infinity if none was due. If there is no memory for a longer ready queue, the rest stays due."""
        cdef const timer_due *first
        cdef TimerHandle handle
        cdef double earliest
        cdef object_section section
        section_enter(&section, self)
        try:
            first = timer_heap_first(&self.heap)
            earliest = INFINITY
            if first != NULL and first.deadline <= now:
                earliest = first.deadline
                timer_heap_sort_due(&self.heap, now)
                first = timer_heap_first(&self.heap)
            while first != NULL and first.deadline <= now:
                if queued(ready) > published_size(&ready.mask):
                    try:
                        make_room(ready)
                    except MemoryError:
                        # No `break` here: leaving an except block fetches the exception's traceback, for which there
                        # may be no memory.
                        pass
                    if queued(ready) > published_size(&ready.mask):
                        break
                    # make_room() may have run code that cancelled the timer.
                    first = timer_heap_first(&self.heap)
                    continue
                timer_heap_prefetch(&self.heap, <PyObject *>self.handles)
                handle = <TimerHandle>PyList_GET_ITEM(self.handles, first.slot)
                timer_heap_pop(&self.heap)
                set_slot(self.handles, handle.slot, None)
                if FREE_THREADED:
                    # push_ready() may give up this critical section while another thread is queueing something.
                    handle.timers = None
                push_ready(ready, handle)
                mark_not_pending(self, handle)
                first = timer_heap_first(&self.heap)
            if self.heap.live == 0 and self.heap.slots > RETAINED_SLOTS:
                self.shrink()
        finally:
            section_leave(&section)
        return earliest

    cdef int shrink(self) except -1:
        """Free the memory that a burst has taken; called when nothing is pending."""
        cdef list handles = None
        try:
            handles = []
        except MemoryError:
            pass
        # Making the list may have run code that sets a timer.
        if handles is not None and self.heap.live == 0:
            self.handles = handles
            timer_heap_clear(&self.heap)
        return 0

    cdef int clear(self) except -1:
        """Drop all handles."""
        cdef list handles = []
        cdef TimerHandle handle
        cdef object_section section
        section_enter(&section, self)
        try:
            self.handles, handles = handles, self.handles
            timer_heap_clear(&self.heap)
            for handle in handles:
                if handle is not None:
                    mark_not_pending(self, handle)
        finally:
            section_leave(&section)
        return 0

    cdef int replace(self, object handles) except -1:
        """Make these the pending handles. TypeError if one is not this module's TimerHandle."""
        cdef list pending = list(handles)
        cdef TimerHandle handle
        for handle in pending:
            if handle is None:
                raise TypeError("None is not a TimerHandle")
        self.clear()
        for handle in pending:
            handle.withdraw()
            self.push(handle)
        return 0

    cdef list in_order(self):
        """A new list of the pending handles, the earliest first."""
        cdef list handles
        cdef object_section section
        section_enter(&section, self)
        try:
            handles = [handle for handle in self.handles if handle is not None]
        finally:
            section_leave(&section)
        handles.sort()
        return handles


cdef TimerHandle new_timer(double deadline, object callback, tuple args, object loop, object context):
    """A TimerHandle as call_at() makes one outside debug mode. If `context` is None, TimerQueue.push() sets it."""
    cdef TimerHandle handle = TimerHandle.__new__(TimerHandle)
    handle.callback = callback
    handle.args = args
    handle.loop = loop
    handle.context = context
    handle.deadline = deadline
    return handle


cdef class TimerHandle(Handle):
    """A callback that is due at a point in time, as call_later() and call_at() return it. See asyncio.TimerHandle."""

    def __init__(self, when, callback, args, loop, context=None):
        super().__init__(callback, args, loop, context)
        self.deadline = when
        if type(when) is not float:
            self.given_deadline = when

    @property
    def __class__(self):
        return asyncio.TimerHandle

    cdef object own_context(self):
        if self.timers is not None:
            unshare_context(self.timers, self)
        return Handle.own_context(self)

    cdef int withdraw(self) except -1:
        # Hold a reference: this handle may have the only one to the queue.
        cdef TimerQueue timers = self.timers
        if timers is not None:
            timers.remove(self)
        return 0

    def cancel(self):
        """Make sure that the callback will not be called. Idempotent."""
        if not self.was_cancelled:
            if self.timers is not None:
                self.withdraw()
            else:
                with cython.critical_section(self):
                    loop = self.loop
                loop._timer_handle_cancelled(self)
        self.cancel_now()

    def when(self):
        """The deadline in seconds, by loop.time()."""
        return self._when

    @property
    def _when(self):
        with cython.critical_section(self):
            return self.deadline if self.given_deadline is None else self.given_deadline

    @_when.setter
    def _when(self, when):
        cdef TimerQueue timers = self.timers
        cdef double deadline = when
        if timers is not None:
            timers.move(self, deadline)
        if type(when) is float:
            when = None
        with cython.critical_section(self):
            self.deadline = deadline
            self.given_deadline, when = when, self.given_deadline

    @property
    def _scheduled(self):
        return self.timers is not None

    @_scheduled.setter
    def _scheduled(self, value):
        if not value:
            self.withdraw()

    def _repr_info(self):
        info = super()._repr_info()
        info.insert(2 if self.was_cancelled else 1, f"when={self._when}")
        return info

    def __hash__(self):
        return hash(self._when)

    def __lt__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self._when < other._when
        return NotImplemented

    def __le__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self._when < other._when or self == other
        return NotImplemented

    def __gt__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self._when > other._when
        return NotImplemented

    def __ge__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            return self._when > other._when or self == other
        return NotImplemented

    def __eq__(self, other):
        if isinstance(other, asyncio.TimerHandle):
            with cython.critical_section(self):
                callback = self.callback
                args = self.args
            return (
                self._when == other._when
                and callback == other._callback
                and args == other._args
                and self._cancelled == other._cancelled
            )
        return NotImplemented


context_cache_install()
free_memory_install(<PyTypeObject *>TimerHandle)
