from cpython.list cimport PyList_GET_ITEM, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t

from hotloop._c.runtime.locking cimport (
    FREE_THREADED,
    object_section,
    publish_size,
    published_size,
    section_enter,
    section_leave,
)

cdef extern from *:
    """
    static inline unsigned int type_version_of(PyObject *object)
    {
        /* The interpreter may assign it in another thread. */
        return __atomic_load_n(&Py_TYPE(object)->tp_version_tag, __ATOMIC_RELAXED);
    }
    """
    unsigned int type_version_of(object)

cdef extern from "runtime/prefetch.h":
    enum:
        PREFETCH_DISTANCE
    void prefetch_object(PyObject *) noexcept


# A version tag that no class ever has. 0 would not do: a modified class has it until the interpreter assigns a new tag.
cdef enum:
    NO_VERSION = 0xFFFFFFFF

cdef enum:
    INITIAL_SLOTS = 64


cdef class Runnable:
    cdef int run(self) except -1    # 1: it was cancelled, nothing ran
    cdef int is_cancelled(self) except -1
    cdef int check_runnable(self) except -1
    cdef int withdraw(self) except -1
    cdef tuple done_callback(self)


# Without the GIL, `ring`, `head`, `count` and `mask` are changed in a critical section of the queue.
cdef class ReadyQueue:
    cdef list ring                  # its length is a power of two; free slots hold None
    cdef Py_ssize_t head            # the index of the oldest Runnable
    cdef Py_ssize_t count           # the number of queued Runnables
    cdef Py_ssize_t mask            # len(ring) - 1
    cdef unsigned int direct_version  # see may_queue_directly()
    cdef bint creates_plain_tasks   # see may_create_directly()
    cdef bint closed                # the loop is closed: queueing raises
    cdef uint64_t steps             # how many steps tasks have run, eager first steps included
    cdef object entered_task        # the task that current_task() returns, left lazily: see Task.run(); None: no task

    cdef int resize(self, Py_ssize_t size) except -1
    cdef int shrink(self) except -1


# Defined here, so that every module inlines them.

cdef inline Py_ssize_t queued(ReadyQueue queue) noexcept:
    """The number of queued Runnables."""
    return published_size(&queue.count)


cdef inline int make_room(ReadyQueue queue) except -1:
    """Ensure that the next push() neither fails nor runs other code. make_room() itself may do both: allocating a
    larger ring may raise MemoryError, and may run the garbage collector."""
    while queued(queue) > published_size(&queue.mask):
        queue.resize(2 * (published_size(&queue.mask) + 1))
    return 0


cdef inline int push(ReadyQueue queue, Runnable item) except -1:
    """Queue an item. Since this may fail, callers record that the item is queued afterwards."""
    cdef PyObject *slot
    cdef Py_ssize_t index
    cdef object_section section
    make_room(queue)
    section_enter(&section, queue)
    while FREE_THREADED and queue.count > queue.mask:
        # Another thread has filled the queue.
        section_leave(&section)
        make_room(queue)
        section_enter(&section, queue)
    index = (queue.head + queue.count) & queue.mask
    slot = PyList_GET_ITEM(queue.ring, index)    # None; the slot's reference to it is dropped below
    Py_INCREF(item)
    PyList_SET_ITEM(queue.ring, index, item)
    Py_DECREF(<object>slot)
    publish_size(&queue.count, queue.count + 1)
    section_leave(&section)
    return 0


cdef inline bint may_queue_directly(ReadyQueue queue, object loop) noexcept:
    """True if futures, tasks and transports may queue themselves without call_soon(), because the program cannot tell:
    the loop is not in debug mode, and its class has not changed since call_soon() was found to be LoopCore's own."""
    return queue.direct_version == type_version_of(loop)


cdef inline bint may_create_directly(ReadyQueue queue, object loop) noexcept:
    """True if new_task() does what the loop's create_task() would: there is no task factory either."""
    return queue.creates_plain_tasks and may_queue_directly(queue, loop) and not queue.closed


cdef inline int schedule(ReadyQueue queue, Runnable item) except -1:
    """push() as call_soon() does it: RuntimeError if the loop is closed."""
    if queue.closed:
        raise RuntimeError("Event loop is closed")
    return push(queue, item)


cdef inline PyObject *pop(ReadyQueue queue) noexcept:
    """Remove the oldest item; return a new reference. The caller has checked that there is one; NULL: another thread
    has removed it since."""
    cdef PyObject *item
    cdef object_section section
    section_enter(&section, queue)
    if FREE_THREADED and queue.count == 0:
        section_leave(&section)
        return NULL
    item = PyList_GET_ITEM(queue.ring, queue.head)
    Py_INCREF(None)
    PyList_SET_ITEM(queue.ring, queue.head, None)
    queue.head = (queue.head + 1) & queue.mask
    publish_size(&queue.count, queue.count - 1)
    section_leave(&section)
    return item


cdef inline void prefetch_item(ReadyQueue queue) noexcept:
    """Have the processor fetch an item that is popped soon."""
    prefetch_object(PyList_GET_ITEM(queue.ring, (queue.head + PREFETCH_DISTANCE) & queue.mask))


cdef Runnable as_runnable(object handle)
cdef object unwrap(object item)
