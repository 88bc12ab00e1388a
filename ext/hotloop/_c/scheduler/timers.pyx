"""TimerHandle, and the queue of pending timers: a heap by deadline, then by age (timer_heap.h).

Most timeouts are cancelled, so the queue drops a cancelled timer at once; only its key in the heap stays behind.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_DECREF
from libc.math cimport INFINITY
from libc.string cimport memset

from hotloop._c.runtime.locking cimport FREE_THREADED, object_section, section_enter, section_leave
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport steal
from hotloop._c.runtime.slots cimport slots_visit, traverse_function
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, has_room
from hotloop._c.scheduler.ready_queue cimport push as push_ready

import asyncio

cdef extern from "scheduler/timer_heap.h":
    Py_ssize_t timer_heap_push(timer_heap *, double deadline, PyObject *handle)
    PyObject *timer_heap_cancel(timer_heap *, Py_ssize_t slot)
    void timer_heap_sort_due(timer_heap *, double now)
    void timer_heap_prefetch(const timer_heap *)
    PyObject *timer_heap_pop(timer_heap *)
    void timer_heap_free(timer_heap *)
    void timer_heap_compact(timer_heap *, void (*move)(PyObject *handle, Py_ssize_t slot) noexcept)

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "runtime/recycling.h"
    """

cdef extern from "runtime/context_cache.h":
    bint context_comparable
    object context_copy_current()
    bint context_is_like_current(PyObject *context)
    bint context_is_blank(PyObject *context)
    int context_cache_install() except -1


# A queue that a burst has grown beyond this frees memory once few of its timers are left.
cdef Py_ssize_t RETAINED_SLOTS = 65536


cdef void move_to_slot(PyObject *handle, Py_ssize_t slot) noexcept:
    (<TimerHandle>handle).slot = slot


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
    slot = timer_heap_push(&queue.heap, deadline, <PyObject *>handle)
    if slot < 0:
        raise MemoryError()
    handle.slot = slot
    handle.timers = queue
    return 0


@cython.no_gc_clear
cdef class TimerQueue:
    """The pending timers of one loop."""

    def __dealloc__(self):
        timer_heap_free(&self.heap)

    cdef int push(self, TimerHandle handle) except -1:
        """Make a new handle pending, and give it a context if it has none. MemoryError: it is not pending."""
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
            # Else code that ran while the context was made has found the handle, and has put it here.
            if handle.timers is None:
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
                Py_DECREF(<object>timer_heap_cancel(&self.heap, before))
        finally:
            section_leave(&section)
        return 0

    cdef int share_context(self, TimerHandle handle) except -1:
        """Give a new handle a copy of the current context; the previous handles' copy, if that is still the same."""
        cdef object context
        if not context_comparable:
            handle.context = context_copy_current()
            return 0
        if self.snapshot is None or not context_is_like_current(<PyObject *>self.snapshot):
            context = context_copy_current()
            # The old snapshot is dropped on return: finalizers of the values in it may set timers.
            self.snapshot, context = context, self.snapshot
            self.sharing = 0
        handle.context = self.snapshot
        handle.context_shared = True
        self.sharing += 1
        return 0

    cdef int remove(self, TimerHandle handle) except -1:
        """Take a pending handle out of the queue."""
        cdef object_section section
        section_enter(&section, self)
        if FREE_THREADED and handle.timers is not self:
            # Another thread was faster.
            section_leave(&section)
            return 0
        Py_DECREF(<object>timer_heap_cancel(&self.heap, handle.slot))
        mark_not_pending(self, handle)
        section_leave(&section)
        return 0

    cdef double expire(self, double now, ReadyQueue ready) except? -1:
        """Queue every handle whose deadline is at most `now`, the earliest first. Returns the earliest of their
        deadlines; infinity if none was due. If there is no memory for a longer ready queue, the rest stays due."""
        cdef const timer_due *first
        cdef TimerHandle handle
        cdef double first_due
        cdef object_section section
        section_enter(&section, self)
        try:
            first = timer_heap_first(&self.heap)
            first_due = INFINITY
            if first != NULL and first.deadline <= now:
                first_due = first.deadline
                timer_heap_sort_due(&self.heap, now)
                first = timer_heap_first(&self.heap)
            while first != NULL and first.deadline <= now and has_room(ready):
                if FREE_THREADED:
                    # has_room() may give up this critical section while another thread is queueing something.
                    first = timer_heap_first(&self.heap)
                    if first == NULL or first.deadline > now:
                        break
                timer_heap_prefetch(&self.heap)
                handle = <TimerHandle>steal(timer_heap_pop(&self.heap))
                if FREE_THREADED:
                    # push_ready() may give it up, too.
                    handle.timers = None
                push_ready(ready, handle)
                mark_not_pending(self, handle)
                # Here, because the last reference may run a finalizer that cancels other timers.
                handle = None
                first = timer_heap_first(&self.heap)
        finally:
            section_leave(&section)
        # Here as well as before a wait, because a loop that always has something to run never waits.
        self.shrink()
        return first_due

    cdef int shrink(self) noexcept:
        """Free the memory of a burst, if few timers are left. Without memory for that the loop tries again before its
        next wait."""
        cdef object_section section
        if self.heap.slots > RETAINED_SLOTS and self.heap.live < self.heap.slots // 16:
            section_enter(&section, self)
            timer_heap_compact(&self.heap, move_to_slot)
            section_leave(&section)
        return 0

    cdef int clear(self) noexcept:
        """Drop all handles."""
        cdef timer_heap dropped
        cdef object snapshot = None
        cdef Py_ssize_t slot
        cdef object_section section
        section_enter(&section, self)
        dropped = self.heap
        memset(&self.heap, 0, sizeof(timer_heap))
        for slot in range(dropped.slots):
            if dropped.handles[slot] != NULL:
                (<TimerHandle>dropped.handles[slot]).timers = None
        self.snapshot, snapshot = snapshot, self.snapshot
        self.sharing = 0
        section_leave(&section)
        # Last, because this may run finalizers, which may set timers.
        timer_heap_free(&dropped)
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
        cdef list handles = []
        cdef Py_ssize_t slot
        cdef object_section section
        section_enter(&section, self)
        try:
            for slot in range(self.heap.slots):
                if self.heap.handles[slot] != NULL:
                    handles.append(<object>self.heap.handles[slot])
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


cdef traverse_function usual_traverse = <traverse_function>(<PyTypeObject *>TimerQueue).tp_traverse


cdef int traverse_timers(PyObject *timers, visitproc visit, void *argument) noexcept:
    cdef int result = usual_traverse(timers, visit, argument)
    if result:
        return result
    return slots_visit((<TimerQueue>timers).heap.handles, (<TimerQueue>timers).heap.slots, visit, argument)


cdef int clear_timers(object timers) except -1:
    """The tp_clear."""
    return (<TimerQueue>timers).clear()


(<PyTypeObject *>TimerQueue).tp_traverse = <traverseproc>traverse_timers
(<PyTypeObject *>TimerQueue).tp_clear = <inquiry>clear_timers
context_cache_install()
free_memory_install(<PyTypeObject *>TimerHandle)
