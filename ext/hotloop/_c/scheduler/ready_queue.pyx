"""The ready queue: a loop runs Runnables in the order in which they were queued.

A Runnable is an object with run(). A Handle is one that holds a callback and its arguments (handles.pyx); a Task is one
itself, so that queueing a step allocates nothing. The queue also keeps what a loop and its tasks share: the entered
task, the number of steps, and which short cuts are allowed.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM

from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave

# A ring that a burst has grown beyond this shrinks again once the queue is empty.
cdef Py_ssize_t RETAINED_SLOTS = 4096


cdef class Runnable:
    """An object that a loop can run: a Handle, a Task (and so a Future is one), or a Watcher."""

    cdef int run(self) except -1:
        raise NotImplementedError

    cdef int is_cancelled(self) except -1:
        return False

    cdef int check_runnable(self) except -1:
        """Called before code outside the loop queues the Runnable: RuntimeError if run() cannot be called."""
        return 0

    cdef int withdraw(self) except -1:
        """Called after code outside the loop has queued the Runnable: a pending timer leaves the timer queue."""
        return 0

    cdef tuple done_callback(self):
        """The (callback, context) that add_done_callback() would store for this waiter."""
        raise NotImplementedError

    @property
    def _cancelled(self):
        return bool(self.is_cancelled())

    @property
    def _source_traceback(self):
        # In debug mode the default exception handler asks what the loop runs where it was made.
        return None


cdef class ForeignRunnable(Runnable):
    """Queues another implementation's handle: any object with `_run()`, such as an asyncio.Handle."""
    cdef object handle

    cdef int run(self) except -1:
        if self.handle._cancelled:
            return 1
        self.handle._run()
        return 0

    cdef int is_cancelled(self) except -1:
        return bool(self.handle._cancelled)


@cython.no_gc_clear
cdef class ReadyQueue:
    """A ring of Runnables. Its slots are those of a Python list, so that the garbage collector sees and clears them.

    Python code sees its subclass ReadyDeque."""

    def __cinit__(self):
        self.ring = [None] * INITIAL_SLOTS
        self.mask = INITIAL_SLOTS - 1
        self.direct_version = NO_VERSION

    cdef int resize(self, Py_ssize_t size) except -1:
        """Move to a ring of `size` slots, unless the ring was resized while the new one was allocated: an allocation
        may run the garbage collector, and thus code that queues callbacks."""
        cdef Py_ssize_t before = published_size(&self.mask) + 1
        cdef list ring = [None] * size
        cdef Py_ssize_t index
        cdef object_section section
        section_enter(&section, self)
        if self.mask + 1 == before and self.count <= size:
            for index in range(self.count):
                ring[index] = <object>PyList_GET_ITEM(self.ring, (self.head + index) & self.mask)
            # The old ring is freed on return. That runs no finalizers: the new ring holds the same items.
            self.ring, ring = ring, self.ring
            self.head = 0
            publish_size(&self.mask, size - 1)
        section_leave(&section)
        return 0

    cdef int shrink(self) except -1:
        """Shrink the ring after a burst; called when the queue is empty."""
        if published_size(&self.mask) >= RETAINED_SLOTS and queued(self) == 0:
            try:
                self.resize(INITIAL_SLOTS)
            except MemoryError:
                # Not fatal: the loop tries again before its next wait.
                pass
        return 0


cdef Runnable as_runnable(object handle):
    """The Runnable to queue for a handle: the handle itself, or a ForeignRunnable around another implementation's."""
    cdef ForeignRunnable foreign
    if isinstance(handle, Runnable):
        (<Runnable>handle).check_runnable()
        return handle
    foreign = ForeignRunnable.__new__(ForeignRunnable)
    foreign.handle = handle
    return foreign


cdef object unwrap(object item):
    """The handle that was passed to as_runnable()."""
    return (<ForeignRunnable>item).handle if type(item) is ForeignRunnable else item
