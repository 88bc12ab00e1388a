"""The selectors API on the kernel's own readiness interface.

A drop-in for `selectors.DefaultSelector`: the same methods, exceptions and rounding, and `isinstance` against
`selectors.BaseSelector` holds. It is faster because a table finds a registered key by its descriptor number, without
hashing, and because one buffer for the kernel's events lives as long as the selector.

The loop uses the same object one level below `select()`: it calls `wait()`, then `event()` for each event, then
`recycle_batch()`. It registers Watchers, by attach(), change() and detach(). The map shows these as keys, too.

Source: the documentation of `selectors`; epoll(7), kqueue(2).
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from libc.errno cimport EINTR, ENOENT
from libc.math cimport ceil, isnan
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from hotloop._c.poller.watcher cimport POLLER_EDGE, POLLER_MORE, POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.scheduler.ready_queue cimport NO_VERSION, type_version_of

import os
import selectors
from abc import ABCMeta
from collections.abc import Mapping

cdef extern from "Python.h":
    ctypedef object (*tuple_constructor)(PyTypeObject *, object, PyObject *)
    struct TupleType "_typeobject":
        tuple_constructor tp_new
    TupleType PyTuple_Type

cdef extern from "poller/poller.h":
    const char *POLLER_NAME
    const int64_t POLLER_RESOLUTION
    const int64_t POLLER_LONGEST
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

cdef extern from "runtime/instance_dict.h":
    object instance_dict_get(object owner)
    int instance_dict_set(object owner, object attributes) except -1

cdef extern from *:
    """
    #define with_instance_dict struct __pyx_obj_7hotloop_2_c_6poller_8selector_PollerSelector
    #define install_instance_dict(type) instance_dict_install(type, with_instance_dict, attributes)
    #define begin_without_dict(self) instance_dict_absent(((with_instance_dict *)(self))->attributes)
    #define is_without_dict(self) (((with_instance_dict *)(self))->attributes == NULL)
    """
    bint is_without_dict(object) noexcept
    void begin_without_dict(object) noexcept
    void install_instance_dict(PyTypeObject *)

cdef extern from "system/fork.h":
    int fork_watch()
    unsigned int fork_generation()

cdef extern from "system/clock.h":
    int64_t clock_nanoseconds()

BACKEND = (<bytes>POLLER_NAME).decode()
"""The kernel interface that this build uses: "epoll", "kqueue", or "": none. "kqueue-shim" is the tests' replacement
for kqueue on Linux."""

cdef object SelectorKey = selectors.SelectorKey

if fork_watch() != 0:
    raise MemoryError("pthread_atfork() failed")


cdef int raise_errno(int error) except -1:
    """Raise the OSError, or its subclass, for a negative errno."""
    raise OSError(-error, os.strerror(-error))


cdef inline object make_key(object fileobj, int fd, int events, object data):
    # SelectorKey(...), without a call of the named tuple's __new__, which is a Python function.
    return PyTuple_Type.tp_new(<PyTypeObject *>SelectorKey, ((fileobj, fd, events, data),), NULL)


cdef inline int events_of(object key) except -1:
    return <object>PyTuple_GET_ITEM(key, 2)


cdef int64_t timeout_nanoseconds(object timeout) except? -2:
    """Convert seconds (None: no limit) to the nanoseconds of poller_wait(); rounded up as the standard library does
    (for epoll to whole milliseconds), so that a wait never ends early."""
    cdef double units
    if timeout is None:
        return -1
    if timeout <= 0:
        return 0
    units = ceil(<double>timeout * (1e9 / POLLER_RESOLUTION))
    # As the standard library, refuse a NaN, and a timeout that the kernel's counter cannot hold.
    if isnan(units):
        raise ValueError("cannot convert float NaN to integer")
    if units >= <double>(POLLER_LONGEST // POLLER_RESOLUTION) + 1:
        raise OverflowError("timeout is too large")
    return <int64_t>units * POLLER_RESOLUTION


class SelectorMapping(Mapping):
    """The registered file objects and their keys, read-only: what `get_map()` returns."""

    __slots__ = ("_selector",)

    def __init__(self, selector):
        self._selector = selector

    def __len__(self):
        return len((<PollerSelector>self._selector).descriptors_in_map())

    def get(self, fileobj, default=None):
        cdef PollerSelector selector = self._selector
        cdef object key = selector.key(selector.descriptor(fileobj))
        return default if key is None else key

    def __getitem__(self, fileobj):
        cdef PollerSelector selector = self._selector
        cdef object key = selector.key(selector.descriptor(fileobj))
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        return key

    def __iter__(self):
        return iter((<PollerSelector>self._selector).descriptors_in_map())


cdef class PollerSelector:
    """The selector, whatever the backend."""

    def __cinit__(self):
        begin_without_dict(self)
        self.poller.fd = -1
        self.idle_batch = NULL
        self.entries = []
        self.registrations = NULL
        self.registered = 0
        self.type_version = NO_VERSION
        self.process = fork_generation()
        cdef int error = poller_open(&self.poller)
        if error < 0:
            raise_errno(error)
        self.map = SelectorMapping(self)

    def __dealloc__(self):
        self.close_set()
        free(self.idle_batch)
        free(self.registrations)

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    def register(self, fileobj, events, data=None):
        """Watch a file object, or a descriptor, for EVENT_READ and/or EVENT_WRITE; return its SelectorKey.

        Raises ValueError for invalid events or an invalid file object, KeyError if it is registered, OSError if the
        kernel refuses it (PermissionError: a regular file). See selectors.BaseSelector.register."""
        cdef int wanted = check_events(events)
        cdef int fd = self.descriptor(fileobj)
        cdef object key
        if self.entry_in_map(fd) is not None:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        self.detach(fd)
        key = make_key(fileobj, fd, wanted, data)
        self.add_entry(fd, key, wanted, False)
        return key

    def unregister(self, fileobj):
        """Stop watching; return the key. KeyError if it is not registered. The descriptor may be closed already."""
        cdef int fd = self.descriptor(fileobj)
        cdef object key = self.key(fd)
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        self.detach(fd)
        return key

    def modify(self, fileobj, events, data=None):
        """Change the events or the data of a registered file object; return the new key.

        KeyError if it is not registered; if the kernel refuses, the file object is unregistered and OSError raised."""
        cdef int fd = self.descriptor(fileobj)
        cdef object key = self.key(fd), entry = self.entry(fd), modified
        cdef registration *registered
        cdef int wanted, error
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        wanted = events
        if wanted == events_of(key) and data == key.data:
            return key
        modified = make_key(key.fileobj, fd, wanted, data)
        if self.entry(fd) is not entry:
            # Converting `events` and comparing `data` may have run the program's code.
            raise KeyError(f"{fileobj!r} is not registered any more")
        if wanted != events_of(key):
            self.ensure_own_set()
            registered = &self.registrations[fd]
            # Not change(), which would register a new file that has the number by now.
            error = poller_modify(&self.poller, fd, registered.events, wanted, registered.generation)
            if error < 0:
                self.drop_refused(fd, error)
            registered.events = wanted
        self.entries[fd] = modified
        self.registrations[fd].watched = False
        return modified

    def select(self, timeout=None):
        """Wait until a registered file object is ready, at most `timeout` seconds (None: no limit; <= 0: do not wait).

        Returns a list of (key, events). A signal whose handler does not raise does not end the wait (PEP 475)."""
        cdef int64_t nanoseconds = timeout_nanoseconds(timeout)
        cdef int64_t deadline = INT64_MAX
        cdef poller_batch *batch
        cdef PyObject *entry
        cdef int count, index, fd = -1, mask = 0
        cdef object key
        cdef list ready = []
        if nanoseconds > 0:
            deadline = clock_nanoseconds() + nanoseconds
        while True:
            batch = self.wait(nanoseconds, nanoseconds != 0, &count)
            if count >= 0:
                break
            self.recycle_batch(batch)
            if nanoseconds > 0:
                nanoseconds = max(deadline - clock_nanoseconds(), 0)
        try:
            for index in range(count):
                entry = self.event(batch, index, &fd, &mask)
                if entry != NULL:
                    key = self.as_key(fd, <object>entry)
                    ready.append((key, mask & (POLLER_READ | POLLER_WRITE)))
        except BaseException:
            for index in range(count):
                self.rearm_event(batch, index)
            raise
        finally:
            self.recycle_batch(batch)
        return ready

    def close(self):
        """Release the kernel's set. Nothing can be registered or selected afterwards. Idempotent."""
        self.close_set()
        self.entries = []
        self.registered = 0
        self.map = None

    def get_key(self, fileobj):
        """The key of a registered file object; KeyError if it is not registered, RuntimeError once closed."""
        if self.map is None:
            raise RuntimeError("Selector is closed")
        cdef object key = self.key(self.descriptor(fileobj))
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        return key

    def get_map(self):
        """A live, read-only mapping of file objects to keys; None once closed."""
        return self.map

    @property
    def _map(self):
        return self.map

    @property
    def _fd_to_key(self):
        return {fd: self.key(fd) for fd in self.descriptors_in_map()}

    def fileno(self):
        """The descriptor of the kernel's set. ValueError once closed."""
        self.ensure_own_set()
        return self.poller.fd

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    cdef int descriptor(self, object fileobj) except -1:
        """The descriptor of a file object. If the file object is closed: the descriptor that it was registered with."""
        cdef int fd
        try:
            fd = descriptor_of(fileobj)
        except ValueError:
            for fd in self.descriptors_in_map():
                if self.key(fd).fileobj is fileobj:
                    break
            else:
                raise
        return fd

    cdef list descriptors_in_map(self):
        cdef list shown = []
        cdef int fd
        for fd in range(len(self.entries)):
            if self.entry_in_map(fd) is not None:
                shown.append(fd)
        return shown

    cdef object entry(self, int fd):
        """The Watcher or the SelectorKey of a descriptor; None if none is registered."""
        if not 0 <= fd < PyList_GET_SIZE(self.entries):
            return None
        return <object>PyList_GET_ITEM(self.entries, fd)

    cdef object entry_in_map(self, int fd):
        """The entry as far as the map shows it: None, too, for a watcher that waits for nothing at the moment."""
        cdef object entry = self.entry(fd)
        if entry is None or self.registrations[fd].watched and (<Watcher>entry).is_idle():
            return None
        return entry

    cdef object key(self, int fd):
        cdef object entry = self.entry_in_map(fd)
        return None if entry is None else self.as_key(fd, entry)

    cdef object as_key(self, int fd, object entry):
        """The entry as a SelectorKey; a watcher's is made for each call."""
        cdef int events = self.registrations[fd].events & (POLLER_READ | POLLER_WRITE)
        cdef Watcher watcher
        if not self.registrations[fd].watched:
            return entry
        watcher = <Watcher>entry
        return make_key(watcher.fileobj(fd), fd, events, watcher.data())

    cdef int grow_tables(self, int fd) except -1:
        cdef Py_ssize_t before = len(self.entries), missing = fd + 1 - before
        cdef registration *grown
        if missing <= 0:
            return 0
        # Double the size, so that ascending descriptors do not cost a copy each.
        missing = max(missing, before)
        grown = <registration *>realloc(self.registrations, (before + missing) * sizeof(registration))
        if grown == NULL:
            raise MemoryError()
        memset(&grown[before], 0, missing * sizeof(registration))
        self.registrations = grown
        self.entries.extend([None] * missing)
        return 0

    cdef int add_entry(self, int fd, object entry, int events, bint watched) except -1:
        cdef int error
        self.ensure_own_set()
        self.last_generation = self.last_generation + 1 or 1
        # First, because the kernel refuses numbers that are too large for a table.
        error = poller_add(&self.poller, fd, events, self.last_generation)
        if error < 0:
            raise_errno(error)
        try:
            self.grow_tables(fd)
        except MemoryError:
            poller_remove(&self.poller, fd, events)
            raise
        self.registrations[fd].generation = self.last_generation
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

    cdef bint owns_set(self) noexcept:
        """True if the kernel's set belongs to this process, not to the parent that forked it."""
        return self.process == fork_generation()

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
            raise_errno(error)
        self.close_set()
        self.poller = fresh
        self.process = fork_generation()
        for fd in range(len(self.entries)):
            registered = &self.registrations[fd]
            if registered.events:
                # Errors are ignored: a descriptor that the child has closed is never ready; detach() drops its entry.
                poller_add(&self.poller, fd, registered.events, registered.generation)
        return 0

    cdef bint select_is_original(self) except -1:
        """True as long as neither a subclass nor the program has replaced select(), so that the loop may bypass it."""
        if self.type_version != type_version_of(self):
            self.class_select_is_original = type(self).select is PollerSelector.select
            self.type_version = type_version_of(self) or NO_VERSION
        return self.class_select_is_original and (is_without_dict(self) or "select" not in instance_dict_get(self))

    # -- what the loop watches -----------------------------------------------------------------------------------------

    cdef int attach(self, int fd, Watcher watcher, int events) except -1:
        """Register a watcher for `events`, which may include POLLER_EDGE, in place of any previous entry of the
        descriptor. OSError if the kernel refuses."""
        self.detach(fd)
        return self.add_entry(fd, watcher, events, True)

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
        if error < 0:
            self.drop_refused(fd, error)
        registered.events = events
        return 0

    cdef int drop_refused(self, int fd, int error) except -1:
        """The kernel has refused to change a registration: drop it, and raise the OSError."""
        poller_remove(&self.poller, fd, self.registrations[fd].events)
        self.drop_entry(fd)
        return raise_errno(error)

    cdef int suspend(self, int fd) except -1:
        """Drop the reference to a watcher that waits for nothing now, so that it may be freed; undone by resume().

        The kernel's set stays as it is until the next event, because resume() often follows soon."""
        if self.entry(fd) is not None:
            self.entries[fd] = None
        return 0

    cdef int resume(self, int fd, Watcher watcher, int events) except -1:
        """Have the watcher receive `events`: after suspend(), or in place of other events."""
        # The program may have closed the selector.
        self.ensure_own_set()
        self.entries[fd] = watcher
        if self.registrations[fd].events != events:
            self.change(fd, events)
        return 0

    cdef bint is_registered(self, int fd) noexcept:
        """True if the descriptor has an entry, be it a suspended one."""
        return 0 <= fd < PyList_GET_SIZE(self.entries) and self.registrations[fd].generation != 0

    cdef int detach(self, int fd) except -1:
        """Drop the descriptor's entry; not even events that were already reported reach it any more. Idempotent."""
        if not self.is_registered(fd):
            return 0
        self.ensure_own_set()
        if self.registrations[fd].events:
            # Errors are ignored: the kernel removes a closed descriptor from the set by itself (epoll(7), question 6).
            poller_remove(&self.poller, fd, self.registrations[fd].events)
        return self.drop_entry(fd)

    # -- one level below select(), for the loop ------------------------------------------------------------------------

    cdef poller_batch *wait(self, int64_t nanoseconds, bint release_gil, int *count) except NULL:
        """Wait. The batch holds `count` events; the caller must give it back by recycle_batch().

        If a signal has interrupted the wait, its Python handler has run and `count` is negative."""
        cdef poller_batch *batch
        # The most events that all descriptors and the waker can have.
        cdef Py_ssize_t needed = POLLER_EVENTS_EACH * self.registered + 1
        self.ensure_own_set()
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
                    raise_errno(count[0])
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
        if registered.generation != generation or events[0] & ~POLLER_MORE == 0:
            return NULL
        entry = PyList_GET_ITEM(self.entries, fd[0])
        if entry == <PyObject *>None:
            # Suspended. A level-triggered event would be reported again and again.
            if not registered.events & POLLER_EDGE:
                poller_remove(&self.poller, fd[0], registered.events)
                registered.events = 0
            return NULL
        return entry

    cdef int rearm_event(self, poller_batch *batch, int index) noexcept:
        """Have the kernel report an event again that could not be handled."""
        cdef int fd = -1, events = 0
        if self.event(batch, index, &fd, &events) != NULL:
            self.rearm(fd)
        return 0

    cdef int rearm(self, int fd) noexcept:
        """Have the next wait report a descriptor's state again. A level-triggered registration needs nothing for that,
        and a closed file has nothing to report."""
        cdef registration *registered
        if self.is_registered(fd) and self.owns_set() and self.poller.fd >= 0:
            registered = &self.registrations[fd]
            if registered.events & POLLER_EDGE:
                poller_modify(&self.poller, fd, registered.events, registered.events, registered.generation)
        return 0

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
            raise_errno(error)
        return 0


cdef unsigned int process_generation() noexcept:
    """A number that is different in each process that is forked from this one, and in each that is forked from that."""
    return fork_generation()


cdef int check_events(object events) except -1:
    if not events or events & ~(POLLER_READ | POLLER_WRITE):
        raise ValueError(f"Invalid events: {events!r}")
    return events


cdef int descriptor_of(object fileobj) except -1:
    cdef object number
    if isinstance(fileobj, int):
        number = fileobj
    else:
        try:
            number = int(fileobj.fileno())
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"Invalid file object: {fileobj!r}") from None
    if number < 0:
        raise ValueError(f"Invalid file descriptor: {number}")
    return number


cdef class EpollSelector(PollerSelector):
    """`selectors.EpollSelector` on epoll_wait(2), Linux."""


cdef class KqueueSelector(PollerSelector):
    """`selectors.KqueueSelector` on kqueue(2), macOS and the BSDs.

    As there, select() returns a file object that is ready for both reading and writing twice, once for each event. But
    a pipe whose read end is closed is ready for writing; the standard library raises BrokenPipeError."""

    def modify(self, fileobj, events, data=None):
        """Change the events or the data of a registered file object; return the new key.

        KeyError if it is not registered; if the events are invalid or the kernel refuses, the file object is
        unregistered and ValueError or OSError raised."""
        try:
            check_events(events)
        except ValueError:
            self.unregister(fileobj)
            raise
        return PollerSelector.modify(self, fileobj, events, data)


install_instance_dict(<PyTypeObject *>PollerSelector)
install_instance_dict(<PyTypeObject *>EpollSelector)
install_instance_dict(<PyTypeObject *>KqueueSelector)

# Not BaseSelector.register(), which is the method of a selector.
ABCMeta.register(selectors.BaseSelector, PollerSelector)

DefaultSelector = {"": selectors.DefaultSelector, "epoll": EpollSelector}.get(BACKEND, KqueueSelector)
for unused in (EpollSelector, KqueueSelector):
    if unused is not DefaultSelector:
        del globals()[unused.__name__]
del unused
