"""Poller: the kernel's set of descriptors, and what is registered in it. What the loop uses of a selector.

A table finds the entry of a descriptor by its number: for the loop a Watcher, for a program that uses the selector
itself a SelectorKey. The backend (poller.h) only translates; here is decided what is registered, what becomes of an
event whose registration has changed since, and what a forked child does.

Each iteration that polls calls `wait()`, then `event()` for each event, then `recycle_batch()`. One buffer for the
kernel's events lives as long as the poller.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject, inquiry
from libc.errno cimport EINTR, ENOENT, ENOMEM, ENOSPC
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from hotloop._c.poller.watcher cimport POLLER_EDGE, POLLER_MORE, Watcher
from hotloop._c.system.os_errors cimport os_error


cdef extern from "poller/poller.h":
    const int POLLER_EVENTS_EACH
    int poller_open(poller *)
    void poller_close(poller *)
    void poller_close_inherited(poller *)
    int poller_add(poller *, int fd, int events, unsigned int generation)
    int poller_modify(poller *, int fd, int before, int events, unsigned int generation)
    int poller_remove(poller *, int fd, int before)
    poller_batch *poller_batch_new(int capacity)
    int poller_wait(poller *, poller_batch *, int64_t nanoseconds) nogil
    int poller_event(const poller *, const poller_batch *, int index, int *fd, unsigned int *generation)
    int poller_wake(poller *)
    int poller_begin_renewal(const poller *, poller *fresh)
    void poller_end_renewal(poller *, poller *fresh, int complete)

cdef extern from "system/fork.h":
    int fork_watch()
    unsigned int fork_count()

if fork_watch() != 0:
    raise MemoryError("pthread_atfork() failed")


@cython.no_gc_clear
cdef class Poller:
    """The descriptors that a loop watches, and their events. Its tp_clear is clear_poller()."""

    def __cinit__(self):
        cdef int error
        self.poller.fd = -1
        self.idle_batch = NULL
        self.entries = []
        self.registrations = NULL
        self.registered = 0
        self.fork_number = fork_count()
        error = poller_open(&self.poller)
        if error < 0:
            raise os_error(error)

    def __dealloc__(self):
        self.close_set()
        free(self.idle_batch)
        free(self.registrations)

    # -- registrations -------------------------------------------------------------------------------------------------

    cdef object entry(self, int fd):
        """The Watcher or the SelectorKey of a descriptor; None if none is registered."""
        if not 0 <= fd < PyList_GET_SIZE(self.entries):
            return None
        return <object>PyList_GET_ITEM(self.entries, fd)

    cdef int attach(self, int fd, Watcher watcher, int events) except -1:
        """Register a watcher for `events`, which may include POLLER_EDGE, in place of any previous entry of the
        descriptor. OSError if the kernel refuses."""
        if self.take_over(fd, watcher, events):
            return 0
        self.detach(fd)
        return self.add_entry(fd, watcher, events, True)

    cdef bint take_over(self, int fd, Watcher watcher, int events) except -1:
        """attach() in one system call instead of two, if the descriptor's registered file is still open under this
        number. The kernel reports the file's state again, with the new generation."""
        cdef registration *registered
        cdef unsigned int generation
        if not self.is_registered(fd) or self.registrations[fd].events == 0:
            return False
        self.ensure_own_set()
        registered = &self.registrations[fd]
        generation = self.next_generation()
        if poller_modify(&self.poller, fd, registered.events, events, generation) < 0:
            return False
        registered.generation = generation
        registered.events = events
        registered.watched = True
        self.entries[fd] = watcher
        return True

    cdef unsigned int next_generation(self) noexcept:
        self.last_generation = self.last_generation + 1 or 1
        return self.last_generation

    cdef int reserve(self, int fd) except -1:
        """Give the descriptor a suspended registration, of which the kernel learns when a watcher calls resume()."""
        self.detach(fd)
        self.grow_tables(fd)
        self.registrations[fd].generation = self.next_generation()
        self.registrations[fd].events = 0
        self.registrations[fd].watched = True
        self.registered += 1
        return 0

    cdef int change(self, int fd, int events) except -1:
        """Change the events of a registered entry; 0: none, not even errors, until the next change.

        If the kernel refuses, the entry is dropped and OSError raised."""
        cdef registration *registered = &self.registrations[fd]
        cdef int error
        self.ensure_own_set()
        if events == 0:
            # The descriptor may be closed already.
            poller_remove(&self.poller, fd, registered.events)
            error = 0
        elif registered.events:
            error = poller_modify(&self.poller, fd, registered.events, events, registered.generation)
        else:
            error = -ENOENT
        if error == -ENOENT:
            # Not in the set, maybe because the number is another file's by now.
            error = poller_add(&self.poller, fd, events, registered.generation)
        return self.note_change(fd, events, error)

    cdef int change_same_file(self, int fd, int events) except -1:
        """change() of an entry whose file must still be the registered one."""
        cdef registration *registered = &self.registrations[fd]
        self.ensure_own_set()
        return self.note_change(
            fd, events, poller_modify(&self.poller, fd, registered.events, events, registered.generation)
        )

    cdef int note_change(self, int fd, int events, int error) except -1:
        """The kernel was asked to change a registration to `events`. If it has refused (`error`, a negative errno),
        drop the entry and raise the OSError."""
        if error < 0:
            poller_remove(&self.poller, fd, self.registrations[fd].events)
            self.drop_entry(fd)
            raise os_error(error)
        self.registrations[fd].events = events
        return 0

    cdef int suspend(self, int fd) except -1:
        """Drop the reference to a watcher that waits for nothing now, so that it may be freed; undone by resume().

        The kernel's set stays as it is until the next event, because resume() often follows soon."""
        if self.entry(fd) is not None:
            self.entries[fd] = None
        return 0

    cdef bint resume(self, int fd, Watcher watcher, int events) except -1:
        """Have the watcher receive `events`: after suspend(), or in place of other events.

        True if the kernel was told, and so reports the file's state again. After suspend() it always is: an event may
        have been dropped, or the number may be another file's by now, which is not in the set."""
        cdef bint suspended = self.entry(fd) is None
        # The program may have closed the selector.
        self.ensure_own_set()
        self.entries[fd] = watcher
        if not suspended and self.registrations[fd].events == events:
            return False
        self.change(fd, events)
        return True

    cdef bint is_registered(self, int fd) noexcept:
        """True if the descriptor has an entry, even if suspended."""
        return 0 <= fd < PyList_GET_SIZE(self.entries) and self.registrations[fd].generation != 0

    cdef bint detach(self, int fd) except -1:
        """Drop the descriptor's entry; not even events that were already reported reach it any more. Idempotent.

        True if the kernel's set had it: then its file was still open under this number."""
        cdef bint had_it = False
        if not self.is_registered(fd):
            return False
        self.ensure_own_set()
        if is_in_set(&self.registrations[fd]):
            # An error is none: the kernel removes a closed descriptor from the set by itself (epoll(7), question 6).
            had_it = poller_remove(&self.poller, fd, self.registrations[fd].events) == 0
        self.drop_entry(fd)
        return had_it

    cdef int grow_tables(self, int fd) except -1:
        cdef Py_ssize_t before = len(self.entries), missing = fd + 1 - before
        cdef registration *grown
        cdef list more
        if missing <= 0:
            return 0
        # Double the size, so that ascending descriptors do not cost a copy each.
        missing = max(missing, before)
        more = [None] * missing
        # Making the list may have run a finalizer that registers a descriptor, or that closes the selector.
        before = len(self.entries)
        if self.poller.fd < 0:
            raise ValueError("I/O operation on closed selector")
        grown = <registration *>realloc(self.registrations, (before + missing) * sizeof(registration))
        if grown == NULL:
            raise MemoryError()
        memset(&grown[before], 0, missing * sizeof(registration))
        self.registrations = grown
        self.entries.extend(more)
        return 0

    cdef int add_entry(self, int fd, object entry, int events, bint watched) except -1:
        cdef unsigned int generation
        cdef int error
        self.ensure_own_set()
        generation = self.next_generation()
        # First, because the kernel refuses numbers that are too large for a table.
        error = poller_add(&self.poller, fd, events, generation)
        if error < 0:
            raise os_error(error)
        try:
            self.grow_tables(fd)
        except MemoryError:
            poller_remove(&self.poller, fd, events)
            raise
        self.registrations[fd].generation = generation
        self.registrations[fd].events = events
        self.registrations[fd].watched = watched
        self.entries[fd] = entry
        self.registered += 1
        return 0

    cdef int drop_entry(self, int fd) except -1:
        self.registrations[fd].generation = self.registrations[fd].events = 0
        self.registered -= 1
        self.entries[fd] = None
        return 0

    # -- the kernel's set ----------------------------------------------------------------------------------------------

    cdef bint owns_set(self) noexcept:
        """True if the kernel's set belongs to this process, not to the parent that forked it."""
        return self.fork_number == fork_count()

    cdef int close_set(self) noexcept:
        if self.poller.fd < 0:
            return 0
        if self.owns_set():
            poller_close(&self.poller)
        else:
            poller_close_inherited(&self.poller)
        return 0

    cdef int ensure_own_set(self) except -1:
        """Raise ValueError if closed. In a forked child, leave the parent's set alone, and make a new one with the same
        registrations."""
        cdef int error, fd
        cdef registration *registered
        cdef poller fresh
        if self.owns_set() and self.poller.fd >= 0:
            return 0
        if self.poller.fd < 0:
            raise ValueError("I/O operation on closed selector")
        # First, so that a child that is out of descriptors can try again.
        error = poller_open(&fresh)
        if error < 0:
            raise os_error(error)
        self.close_set()
        self.poller = fresh
        self.fork_number = fork_count()
        for fd in range(len(self.entries)):
            registered = &self.registrations[fd]
            if is_in_set(registered):
                # Errors are ignored: a descriptor that the child has closed is never ready; detach() drops its entry.
                poller_add(&self.poller, fd, registered.events, registered.generation)
        return 0

    cdef int renew_set(self) noexcept:
        """Have the kernel forget the files whose descriptors were closed while they were registered. If that fails, the
        next stale event tries again. A set that the program may watch from outside cannot be replaced."""
        cdef poller fresh
        cdef registration *registered
        cdef int fd, error
        cdef bint complete = True
        self.renewal_due = False
        if self.number_taken or poller_begin_renewal(&self.poller, &fresh) < 0:
            return 0
        for fd in range(<int>PyList_GET_SIZE(self.entries)):
            registered = &self.registrations[fd]
            if is_in_set(registered):
                error = poller_add(&fresh, fd, registered.events, registered.generation)
                # Other errors mean that the descriptor is closed: it is never ready, and detach() drops its entry.
                complete = complete and error != -ENOMEM and error != -ENOSPC
        poller_end_renewal(&self.poller, &fresh, complete)
        return 0

    # -- events --------------------------------------------------------------------------------------------------------

    cdef poller_batch *wait(self, int64_t nanoseconds, bint release_gil, int *count) except NULL:
        """Wait. The batch holds `count` events; the caller must give it back by recycle_batch().

        If a signal has interrupted the wait, its Python handler has run and `count` is negative."""
        cdef poller_batch *batch
        # The most events that all descriptors and the waker can have.
        cdef Py_ssize_t needed = POLLER_EVENTS_EACH * self.registered + 1
        self.ensure_own_set()
        if self.renewal_due:
            self.renew_set()
        self.waits += 1
        if self.idle_batch == NULL or self.idle_batch.capacity < needed:
            batch = poller_batch_new(<int>min(2 * needed, 1 << 30))
            if batch != NULL:
                self.recycle_batch(batch)
            elif self.idle_batch == NULL:
                raise MemoryError()
            # Else use the old batch: the events that do not fit come with the next wait.
        batch = self.idle_batch
        self.idle_batch = NULL
        if release_gil:
            with nogil:
                count[0] = poller_wait(&self.poller, batch, nanoseconds)
        else:
            count[0] = poller_wait(&self.poller, batch, nanoseconds)
        if count[0] < 0:
            try:
                if count[0] != -EINTR:
                    raise os_error(count[0])
                PyErr_CheckSignals()
            except BaseException:
                self.recycle_batch(batch)
                raise
        return batch

    cdef PyObject *event(self, poller_batch *batch, int index, int *fd, int *events) noexcept:
        """The entry (borrowed) that event `index` is for, its descriptor and events; NULL if no entry waits for it."""
        cdef unsigned int generation = 0
        cdef registration *registered
        cdef PyObject *entry
        events[0] = poller_event(&self.poller, batch, index, fd, &generation)
        if events[0] == 0 or fd[0] >= PyList_GET_SIZE(self.entries):
            return NULL
        registered = &self.registrations[fd[0]]
        events[0] &= registered.events | POLLER_MORE
        if registered.generation != generation or not is_in_set(registered):
            self.note_stale(fd[0], generation)
            return NULL
        if events[0] & ~POLLER_MORE == 0 and registered.events:
            return NULL
        entry = PyList_GET_ITEM(self.entries, fd[0])
        if entry == <PyObject *>None:
            # Suspended. A level-triggered event would be reported again and again.
            if not registered.events & POLLER_EDGE:
                poller_remove(&self.poller, fd[0], registered.events)
                registered.events = 0
            return NULL
        return entry

    cdef int note_stale(self, int fd, unsigned int generation) noexcept:
        """An event came without a registration. Once that is usual, because an earlier event of the batch may have
        removed it. After a later wait it is not: the program has closed the descriptor while it was registered, another
        one keeps the file open, and the kernel would report it again and again."""
        if fd == self.stale_fd and generation == self.stale_generation:
            if self.stale_wait != self.waits:
                self.renewal_due = True
        elif self.waits - self.stale_wait > 1:
            self.stale_fd = fd
            self.stale_generation = generation
            self.stale_wait = self.waits
        return 0

    cdef int rearm_event(self, poller_batch *batch, int index) noexcept:
        """Have the kernel report an event again that could not be handled."""
        cdef int fd = -1, events = 0
        if self.event(batch, index, &fd, &events) != NULL:
            self.rearm(fd)
        return 0

    cdef int rearm(self, int fd) noexcept:
        """Have the next wait report a descriptor's state again; a negative errno if the kernel refuses. A
        level-triggered registration needs nothing for that, and a closed file has nothing to report."""
        cdef registration *registered
        cdef int error = 0
        if self.is_registered(fd) and self.owns_set() and self.poller.fd >= 0:
            registered = &self.registrations[fd]
            if registered.events & POLLER_EDGE:
                error = poller_modify(&self.poller, fd, registered.events, registered.events, registered.generation)
                if error == -ENOENT:
                    # As in change().
                    error = poller_add(&self.poller, fd, registered.events, registered.generation)
        return error

    cdef void recycle_batch(self, poller_batch *batch) noexcept:
        # If two threads select at once, there are two batches; keep one.
        free(self.idle_batch)
        self.idle_batch = batch

    cdef int wake(self) except -1:
        """End the current wait, or the next one. May be called from any thread and from a signal handler."""
        cdef int error
        if self.poller.fd < 0 or not self.owns_set():
            # Closed; or forked, where the waker is the parent's and nothing waits in this process yet.
            return 0
        error = poller_wake(&self.poller)
        if error < 0:
            raise os_error(error)
        return 0


cdef int clear_poller(object poller) except -1:
    """The tp_clear. What the garbage collector has cleared has no entries, and keeps the empty list: code that runs
    while a cycle is cleared may still find it."""
    cdef Poller self = poller
    self.registered = 0
    if self.entries is not None:
        del self.entries[:]
    return 0


(<PyTypeObject *>Poller).tp_clear = <inquiry>clear_poller


cdef unsigned int fork_number() noexcept:
    """A number that is different in each process that is forked from this one, and in each that is forked from that."""
    return fork_count()
