"""The ready queue: a loop runs Runnables in the order in which they were queued.

A Runnable is an object with run(). A Handle is one that holds a callback and its arguments (handles.pyx); a Task is one
itself, so that queueing a step allocates nothing. The queue also keeps what a loop and its tasks share: the entered
task, the number of steps, and which short cuts are allowed.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_XDECREF

from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.runtime.references cimport steal
from hotloop._c.runtime.slots cimport slots_visit, traverse_function

# A ring that a burst has grown beyond this shrinks again once the queue is empty.
cdef Py_ssize_t RETAINED_SLOTS = 4096


cdef class Runnable:
    """An object that a loop can run, such as a Handle, a Task (and so a Future is one) or a Watcher."""

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

    cdef int taken_off(self, bint dropped) except -1:
        """Called after code outside the loop has taken the Runnable off the queue. It may call `_run()`, unless the
        Runnable was `dropped`."""
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
    """A ring of Runnables, in slots of its own (runtime/slots.h).

    Python code sees its subclass ReadyDeque."""

    def __cinit__(self):
        if not self.resize(INITIAL_SLOTS):
            raise MemoryError
        self.direct_version = NO_VERSION

    def __dealloc__(self):
        cdef list items
        try:
            items = []
            while queued(self):
                items.append(steal(pop(self)))
            # A list drops its last item first.
            items.reverse()
        except MemoryError:
            self.drop_all()
        PyMem_Free(self.ring)
        # Here the list drops the items. They may hold another queue, and so on: lists limit how deep that nests.

    cdef bint resize(self, Py_ssize_t size) noexcept:
        """Move to a ring of `size` slots. Called in a critical section of the queue. False: there is no memory."""
        cdef PyObject **ring = <PyObject **>PyMem_Calloc(size, sizeof(PyObject *))
        cdef Py_ssize_t index
        if ring == NULL:
            return False
        for index in range(self.count):
            ring[index] = self.ring[(self.head + index) & self.mask]
        PyMem_Free(self.ring)
        self.ring = ring
        self.head = 0
        publish_size(&self.mask, size - 1)
        return True

    cdef int shrink(self) noexcept:
        """Shrink the ring after a burst, if the queue is empty. Without memory the loop tries again before its next
        wait."""
        cdef object_section section
        if published_size(&self.mask) >= RETAINED_SLOTS:
            section_enter(&section, self)
            if self.count == 0:
                self.resize(INITIAL_SLOTS)
            section_leave(&section)
        return 0

    cdef int drop_all(self) noexcept:
        """Drop what is queued, but not what finalizers queue meanwhile."""
        cdef Py_ssize_t left = queued(self)
        while left:
            left -= 1
            Py_XDECREF(pop(self))
        return 0


cdef traverse_function usual_traverse = <traverse_function>(<PyTypeObject *>ReadyQueue).tp_traverse


cdef int traverse_queue(PyObject *queue, visitproc visit, void *argument) noexcept:
    cdef int result = usual_traverse(queue, visit, argument)
    if result or (<ReadyQueue>queue).ring == NULL:
        return result
    return slots_visit((<ReadyQueue>queue).ring, (<ReadyQueue>queue).mask + 1, visit, argument)


cdef int clear_queue(object queue) except -1:
    """The tp_clear. What the garbage collector has cleared is empty, and belongs to no loop that runs."""
    cdef ReadyQueue self = queue
    self.closed = True
    self.drop_all()
    self.entered_task = None
    return 0


(<PyTypeObject *>ReadyQueue).tp_traverse = <traverseproc>traverse_queue
(<PyTypeObject *>ReadyQueue).tp_clear = <inquiry>clear_queue


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
