from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from hotloop._c.poller.watcher cimport Watcher


cdef extern from "poller/poller.h":
    ctypedef struct poller:
        int fd

    ctypedef struct poller_batch:
        int capacity

# What is registered for a descriptor, beside the object in `entries`.
ctypedef struct registration:
    unsigned int generation         # tells events from those of a file that had the same number before; 0: none
    int events                      # POLLER_READ, POLLER_WRITE, POLLER_EDGE; 0: see is_in_set()
    bint watched                    # the entry is a Watcher, not a SelectorKey


cdef inline bint is_in_set(const registration *registered) noexcept:
    """Whether the kernel's set has the descriptor. A Watcher without events is not in it. A program's SelectorKey is,
    because the standard library's epoll selector, too, reports hang-ups and errors to a key without events."""
    return registered.events != 0 or (registered.generation != 0 and not registered.watched)


cdef class Poller:
    cdef poller poller
    cdef poller_batch *idle_batch   # the batch of the last wait, kept for the next one; NULL while a wait uses it
    cdef list entries               # by descriptor: a Watcher or a SelectorKey; None: not registered, or suspended
    cdef registration *registrations  # by descriptor, as many as there are entries
    cdef unsigned int last_generation
    cdef Py_ssize_t registered      # the number of registered descriptors
    cdef unsigned int waits         # the number of calls of wait()
    cdef int stale_fd               # the descriptor, generation and wait of an event without a registration
    cdef unsigned int stale_generation, stale_wait
    cdef bint renewal_due           # the kernel reports a file that cannot be removed from the set
    cdef bint number_taken          # the program knows the set's number, and may watch the set
    cdef unsigned int fork_number   # of the process that owns the kernel's set

    # Registrations.
    cdef object entry(self, int fd)
    cdef bint is_registered(self, int fd) noexcept
    cdef int attach(self, int fd, Watcher watcher, int events) except -1
    cdef unsigned int next_generation(self) noexcept
    cdef int reserve(self, int fd) except -1
    cdef bint take_over(self, int fd, Watcher watcher, int events) except -1
    cdef int change(self, int fd, int events) except -1
    cdef int change_same_file(self, int fd, int events) except -1
    cdef int note_change(self, int fd, int events, int error) except -1
    cdef int suspend(self, int fd) except -1
    cdef bint resume(self, int fd, Watcher watcher, int events) except -1
    cdef bint detach(self, int fd) except -1
    cdef int add_entry(self, int fd, object entry, int events, bint watched) except -1
    cdef int drop_entry(self, int fd) except -1
    cdef int grow_tables(self, int fd) except -1

    # The kernel's set.
    cdef bint owns_set(self) noexcept
    cdef int ensure_own_set(self) except -1
    cdef int close_set(self) noexcept
    cdef int renew_set(self) noexcept

    # Events.
    cdef poller_batch *wait(self, int64_t nanoseconds, bint release_gil, int *count) except NULL
    cdef PyObject *event(self, poller_batch *batch, int index, int *fd, int *events) noexcept
    cdef int note_stale(self, int fd, unsigned int generation) noexcept
    cdef void recycle_batch(self, poller_batch *batch) noexcept
    cdef int rearm(self, int fd) noexcept
    cdef int rearm_event(self, poller_batch *batch, int index) noexcept
    cdef int wake(self) except -1


cdef unsigned int fork_number() noexcept
