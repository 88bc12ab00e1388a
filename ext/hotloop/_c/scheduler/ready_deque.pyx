"""ReadyDeque: the ready queue as programs know `loop._ready`, a collections.deque of handles.

Programs that drive a loop themselves, or reorder its callbacks, may use any method of a deque. The frequent ones work
on the queue directly; the others run on a deque of its handles, whose contents then replace those of the queue.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyObject_RichCompare, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from hotloop._c.runtime.locking cimport object_section, publish_size, section_enter, section_leave
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.ready_queue cimport (
    INITIAL_SLOTS,
    ReadyQueue,
    Runnable,
    as_runnable,
    pop,
    push,
    queued,
    unwrap,
)

from collections import deque


@cython.no_gc_clear
cdef class ReadyDeque(ReadyQueue):
    """The handles that are ready to run, oldest first: the loop's own, or any object with `_run()` and `_cancelled`."""

    @property
    def __class__(self):
        return deque

    @property
    def maxlen(self):
        """None: the length is not limited."""
        return None

    cdef int replace(self, object handles, Py_ssize_t known) except -1:
        """Put `handles` in place of the `known` oldest. Handles that were queued in the meantime stay, behind them."""
        cdef ReadyQueue queue = self    # whose `count` is a number; this class has a method of that name
        cdef list items = []
        cdef PyObject **before
        cdef PyObject **ring
        cdef set given_ids
        cdef Py_ssize_t given, dropped, kept, head, mask, index, size = INITIAL_SLOTS
        cdef object_section section
        for handle in handles:
            items.append(as_runnable(handle))
        given_ids = {<size_t><PyObject *>item for item in items}
        given = len(items)
        section_enter(&section, queue)
        before, head, mask = queue.ring, queue.head, queue.mask
        dropped = min(known, queue.count)
        kept = queue.count - dropped
        while size < given + kept:
            size *= 2
        ring = <PyObject **>PyMem_Calloc(size, sizeof(PyObject *))
        if ring == NULL:
            section_leave(&section)
            raise MemoryError
        for index in range(given):
            Py_INCREF(items[index])
            ring[index] = <PyObject *>items[index]
        for index in range(kept):
            ring[given + index] = before[(head + dropped + index) & mask]
        queue.ring = ring
        queue.head = 0
        publish_size(&queue.count, given + kept)
        publish_size(&queue.mask, size - 1)
        section_leave(&section)
        # Last, because both may run finalizers: of the dropped handles, and of what the timers referred to.
        for index in range(dropped):
            drop(before[(head + index) & mask], given_ids)
        PyMem_Free(before)
        for item in items:
            (<Runnable>item).withdraw()
        return 0

    cdef object apply(self, str name, tuple arguments):
        """Call a method of a deque of the handles, then take over the deque's contents."""
        cdef object handles = deque(self)
        cdef Py_ssize_t known = len(handles)
        cdef object result = getattr(handles, name)(*arguments)
        self.replace(handles, known)
        return result

    def append(self, handle, /):
        """Queue a handle."""
        cdef Runnable item = as_runnable(handle)
        push(self, item)
        # A pending timer leaves the timer queue.
        item.withdraw()

    def extend(self, iterable, /):
        """append() each."""
        for handle in iterable:
            self.append(handle)

    def appendleft(self, handle, /):
        """Queue a handle ahead of all others."""
        self.apply("appendleft", (handle,))

    def extendleft(self, iterable, /):
        """appendleft() each: the last one comes first."""
        self.apply("extendleft", (iterable,))

    def insert(self, index, handle, /):
        """Queue a handle before the one at `index`."""
        self.apply("insert", (index, handle))

    def popleft(self):
        """Remove and return the oldest handle; IndexError if there is none."""
        cdef PyObject *found = pop(self)
        cdef Runnable item
        if found == NULL:
            raise IndexError("pop from an empty deque")
        item = <Runnable>steal(found)
        item.taken_off(False)
        return unwrap(item)

    def pop(self):
        """Remove and return the latest handle; IndexError if there is none."""
        return self.apply("pop", ())

    def remove(self, value, /):
        """Remove the first occurrence of a handle; ValueError if there is none."""
        self.apply("remove", (value,))

    def clear(self):
        """Drop all handles, but not what finalizers queue meanwhile."""
        cdef Py_ssize_t left = queued(self)
        cdef PyObject *item
        while left:
            left -= 1
            item = pop(self)
            if item != NULL:
                drop(item, None)

    def reverse(self):
        """Reverse the order in place."""
        self.apply("reverse", ())

    def rotate(self, steps=1, /):
        """Move `steps` handles from the back to the front; if negative, from the front to the back."""
        self.apply("rotate", (steps,))

    def copy(self):
        """A deque of the handles."""
        return deque(self)

    def __copy__(self):
        return deque(self)

    def count(self, handle, /):
        """The number of times that a handle is queued."""
        return deque(self).count(handle)

    def index(self, handle, /, *bounds):
        """The index of a handle's first occurrence, optionally within bounds; ValueError if there is none."""
        return deque(self).index(handle, *bounds)

    def __len__(self):
        return queued(self)

    def __iter__(self):
        cdef list handles = []
        cdef Py_ssize_t index
        cdef object_section section
        section_enter(&section, self)
        try:
            for index in range(queued(self)):
                handles.append(unwrap(<object>self.ring[(self.head + index) & self.mask]))
        finally:
            section_leave(&section)
        return iter(handles)

    def __reversed__(self):
        return reversed(deque(self))

    def __getitem__(self, index):
        return deque(self)[index]

    def __setitem__(self, index, handle):
        self.apply("__setitem__", (index, handle))

    def __delitem__(self, index):
        self.apply("__delitem__", (index,))

    def __add__(self, other):
        return deque(self) + as_deque(other)

    def __iadd__(self, handles):
        self.extend(handles)
        return self

    def __mul__(self, times):
        return deque(self) * times

    def __imul__(self, times):
        self.apply("__imul__", (times,))
        return self

    def __richcmp__(self, other, int operation):
        return PyObject_RichCompare(deque(self), as_deque(other), operation)

    def __repr__(self):
        return repr(deque(self))


cdef int drop(PyObject *item, set kept) noexcept:
    """Give up the reference of a place in the queue. `kept`: the ids of items that have another place; None: none."""
    try:
        if kept is None or <size_t>item not in kept:
            (<Runnable>item).taken_off(True)
    except BaseException:
        # There is no memory. An exception has nowhere to go here.
        pass
    Py_DECREF(<object>item)
    return 0


cdef object as_deque(object other):
    return deque(other) if isinstance(other, ReadyQueue) else other


# That of ReadyQueue. A class without one inherits none.
(<PyTypeObject *>ReadyDeque).tp_clear = (<PyTypeObject *>ReadyQueue).tp_clear
