from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t

from hotloop._c.runtime.locking cimport (
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
    cdef int taken_off(self, bint dropped) except -1
    cdef tuple done_callback(self)


# Without the GIL, `ring`, `head`, `count`, `mask` and `closed` are changed in a critical section of the queue.
cdef class ReadyQueue:
    cdef PyObject **ring            # `mask + 1` slots, a power of two; free ones hold NULL
    cdef Py_ssize_t head            # the index of the oldest Runnable
    cdef Py_ssize_t count           # the number of queued Runnables
    cdef Py_ssize_t mask
    cdef unsigned int direct_version  # see may_queue_directly()
    cdef bint creates_plain_tasks   # see may_create_directly()
    cdef bint closed                # the loop is closed: schedule() raises
    cdef uint64_t steps             # how many steps tasks have run, eager first steps included
    cdef object entered_task        # the task that current_task() returns, left lazily: see Task.run(); None: no task

    cdef bint resize(self, Py_ssize_t size) noexcept
    cdef int shrink(self) noexcept
    cdef int drop_all(self) noexcept


# Defined here, so that every module inlines them.

cdef inline Py_ssize_t queued(ReadyQueue queue) noexcept:
    """The number of queued Runnables."""
    return published_size(&queue.count)


cdef inline bint has_room(ReadyQueue queue) noexcept:
    """Make room for one more item. False: there is no memory for a larger ring."""
    cdef bint has
    cdef object_section section
    section_enter(&section, queue)
    has = queue.count <= queue.mask or queue.resize(2 * (queue.mask + 1))
    section_leave(&section)
    return has


cdef inline bint append(ReadyQueue queue, Runnable item) noexcept:
    """Called in a critical section of the queue. False: there is no memory."""
    if queue.count > queue.mask and not queue.resize(2 * (queue.mask + 1)):
        return False
    Py_INCREF(item)
    queue.ring[(queue.head + queue.count) & queue.mask] = <PyObject *>item
    publish_size(&queue.count, queue.count + 1)
    return True


cdef inline int push(ReadyQueue queue, Runnable item) except -1:
    """Queue an item; MemoryError. Runs no other code. Since this may fail, callers record that the item is queued
    afterwards."""
    cdef object_section section
    cdef bint appended
    section_enter(&section, queue)
    appended = append(queue, item)
    section_leave(&section)
    if not appended:
        raise MemoryError
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
    cdef object_section section
    cdef bint closed, appended = False
    section_enter(&section, queue)
    closed = queue.closed
    if not closed:
        appended = append(queue, item)
    section_leave(&section)
    if closed:
        raise RuntimeError("Event loop is closed")
    if not appended:
        raise MemoryError
    return 0


cdef inline int set_queue_closed(ReadyQueue queue, bint closed) noexcept:
    """From now on schedule() raises, in all threads; or no longer."""
    cdef object_section section
    section_enter(&section, queue)
    queue.closed = closed
    section_leave(&section)
    return 0


cdef inline PyObject *pop(ReadyQueue queue) noexcept:
    """Remove the oldest item and return a new reference; NULL if there is none."""
    cdef PyObject *item
    cdef object_section section
    section_enter(&section, queue)
    if queue.count == 0:
        section_leave(&section)
        return NULL
    item = queue.ring[queue.head]
    queue.ring[queue.head] = NULL
    queue.head = (queue.head + 1) & queue.mask
    publish_size(&queue.count, queue.count - 1)
    section_leave(&section)
    return item


cdef inline void prefetch_item(ReadyQueue queue) noexcept:
    """Have the processor fetch an item that is popped soon. Not without the GIL: another thread may free the ring."""
    prefetch_object(queue.ring[(queue.head + PREFETCH_DISTANCE) & queue.mask])


cdef Runnable as_runnable(object handle)
cdef object unwrap(object item)
