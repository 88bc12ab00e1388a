"""The selectors API on the kernel's own readiness interface.

A drop-in for `selectors.DefaultSelector`: the same methods, exceptions and rounding, and `isinstance` against
`selectors.BaseSelector` holds. What makes it faster is the table that finds a registered key by its descriptor number
without hashing, and one buffer for the kernel's events that lives as long as the selector.

The loop uses the same object one level below `select()`: `wait()`, then `event()` for each, then `release()`.

Source: the documentation of `selectors`; epoll(7).
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from libc.errno cimport EINTR
from libc.math cimport ceil, isnan
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free

cdef extern from "quiet.h":
    pass

import os
import selectors
from abc import ABCMeta
from collections.abc import Mapping

cdef extern from "Python.h":
    ctypedef object (*tuple_constructor)(PyTypeObject *, object, PyObject *)
    struct TupleType "_typeobject":
        tuple_constructor tp_new
    TupleType PyTuple_Type

cdef extern from "poller.h":
    enum: POLLER_READ
    enum: POLLER_WRITE
    const char *POLLER_NAME
    int poller_open(poller *)
    void poller_close(poller *)
    int poller_add(poller *, int fd, int events)
    int poller_modify(poller *, int fd, int events)
    int poller_remove(poller *, int fd)
    poller_batch *poller_batch_new(int capacity)
    int poller_wait(poller *, poller_batch *, int64_t nanoseconds) nogil
    int poller_event(const poller *, const poller_batch *, int index, int *fd)
    int poller_wake(poller *)

cdef extern from "instance_dict.h":
    object instance_dict_get(object owner)
    int instance_dict_set(object owner, object attributes) except -1

cdef extern from *:
    """
    #define with_instance_dict struct __pyx_obj_7hotloop_2_c_8selector_PollerSelector
    #define install_instance_dict(type) instance_dict_install(type, with_instance_dict, attributes)
    #define begin_without_dict(self) instance_dict_absent(((with_instance_dict *)(self))->attributes)
    """
    void begin_without_dict(object) noexcept
    void install_instance_dict(PyTypeObject *)

cdef extern from "fork.h":
    int fork_watch()
    unsigned int fork_generation()

cdef extern from "clock.h":
    int64_t clock_nanoseconds()

BACKEND = (<bytes>POLLER_NAME).decode()
"""The kernel interface that this build drives: "epoll", or "" where it has none."""

cdef object SelectorKey = selectors.SelectorKey

if fork_watch() != 0:
    raise MemoryError("pthread_atfork() failed")


cdef int raise_errno(int error) except -1:
    """Raise the OSError, or its subclass, for a negative errno."""
    raise OSError(-error, os.strerror(-error))


cdef inline object make_key(object fileobj, int fd, int events, object data):
    # What SelectorKey(...) does, without the call of the Python function that a named tuple's __new__ is.
    return PyTuple_Type.tp_new(<PyTypeObject *>SelectorKey, ((fileobj, fd, events, data),), NULL)


cdef inline int events_of(object key) except -1:
    return <object>PyTuple_GET_ITEM(key, 2)


cdef int64_t timeout_nanoseconds(object timeout) except? -2:
    """Seconds, or None for no limit, as poller_wait() takes them; rounded up to whole milliseconds as the standard
    library does, so that a wait never ends before its time."""
    cdef double milliseconds
    if timeout is None:
        return -1
    if timeout <= 0:
        return 0
    milliseconds = ceil(<double>timeout * 1e3)
    # As the standard library: what is no number, or beyond what the kernel's counter holds, is refused.
    if isnan(milliseconds):
        raise ValueError("cannot convert float NaN to integer")
    if milliseconds > 2147483647.0:
        raise OverflowError("timeout is too large")
    return <int64_t>milliseconds * 1000000


class SelectorMapping(Mapping):
    """The registered file objects and their keys, read-only: what `get_map()` returns."""

    __slots__ = ("_selector",)

    def __init__(self, selector):
        self._selector = selector

    def __len__(self):
        return (<PollerSelector>self._selector).registered

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
        return iter([key.fd for key in (<PollerSelector>self._selector).keys if key is not None])


cdef class PollerSelector:
    """What every backend's selector shares."""

    def __cinit__(self):
        begin_without_dict(self)
        self.poller.fd = -1
        self.spare = NULL
        self.keys = []
        self.registered = 0
        self.generation = fork_generation()
        cdef int error = poller_open(&self.poller)
        if error < 0:
            raise_errno(error)
        self.map = SelectorMapping(self)

    def __dealloc__(self):
        if self.poller.fd >= 0:
            poller_close(&self.poller)
        free(self.spare)

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
        cdef int error
        if self.key(fd) is not None:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        self.own()
        key = make_key(fileobj, fd, wanted, data)
        error = poller_add(&self.poller, fd, wanted)
        if error < 0:
            raise_errno(error)
        self.store(fd, key)
        self.registered += 1
        return key

    def unregister(self, fileobj):
        """Stop watching; return the key. KeyError if it is not registered. The descriptor may be closed already."""
        cdef int fd = self.descriptor(fileobj)
        cdef object key = self.key(fd)
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        self.own()
        self.forget(fd)
        # A closed descriptor left the set by itself (epoll(7), question 6).
        poller_remove(&self.poller, fd)
        return key

    def modify(self, fileobj, events, data=None):
        """Change the events or the data of a registered file object; return the new key.

        KeyError if it is not registered; if the kernel refuses, the file object is unregistered and OSError raised."""
        cdef int fd = self.descriptor(fileobj)
        cdef object key = self.key(fd)
        cdef int wanted, error
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        wanted = events
        if wanted == events_of(key) and data == key.data:
            return key
        if wanted != events_of(key):
            self.own()
            error = poller_modify(&self.poller, fd, wanted)
            if error < 0:
                self.forget(fd)
                poller_remove(&self.poller, fd)
                raise_errno(error)
        key = make_key(key.fileobj, fd, wanted, data)
        self.store(fd, key)
        return key

    def select(self, timeout=None):
        """Wait until a registered file object is ready, at most `timeout` seconds (None: no limit; <= 0: do not wait).

        Returns a list of (key, events). A signal whose handler does not raise does not end the wait (PEP 475)."""
        cdef int64_t nanoseconds = timeout_nanoseconds(timeout)
        cdef int64_t deadline = INT64_MAX
        cdef poller_batch *batch
        cdef int count, index, mask = 0
        cdef object key
        cdef list ready = []
        if nanoseconds > 0:
            deadline = clock_nanoseconds() + nanoseconds
        while True:
            batch = self.wait(nanoseconds, nanoseconds != 0, &count)
            if count >= 0:
                break
            self.release(batch)
            if nanoseconds > 0:
                nanoseconds = max(deadline - clock_nanoseconds(), 0)
        try:
            for index in range(count):
                key = self.event(batch, index, &mask)
                if key is not None:
                    ready.append((key, mask))
        finally:
            self.release(batch)
        return ready

    def close(self):
        """Release the kernel's set. Nothing can be registered or selected afterwards. Idempotent."""
        poller_close(&self.poller)
        self.keys = []
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
        return {key.fd: key for key in self.keys if key is not None}

    def fileno(self):
        """The descriptor of the kernel's set."""
        if self.poller.fd < 0:
            raise ValueError("I/O operation on closed selector")
        return self.poller.fd

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    cdef int descriptor(self, object fileobj) except -1:
        """The descriptor of a file object; of one that is closed by now, the one it was registered with."""
        cdef int fd
        try:
            fd = descriptor_of(fileobj)
        except ValueError:
            for key in self.keys:
                if key is not None and key.fileobj is fileobj:
                    return key.fd
            raise
        return fd

    cdef object key(self, int fd):
        if fd >= len(self.keys):
            return None
        return <object>PyList_GET_ITEM(self.keys, fd)

    cdef int store(self, int fd, object key) except -1:
        cdef Py_ssize_t missing = fd + 1 - len(self.keys)
        if missing > 0:
            # To twice the size, so that ascending descriptors cost no copy each.
            self.keys.extend([None] * max(missing, len(self.keys)))
        self.keys[fd] = key
        return 0

    cdef int forget(self, int fd) except -1:
        self.keys[fd] = None
        self.registered -= 1
        return 0

    cdef int own(self) except -1:
        """In a forked child, leave the parent's set alone and make one of our own with the same registrations."""
        cdef int error
        if self.generation == fork_generation() and self.poller.fd >= 0:
            return 0
        if self.poller.fd < 0:
            raise ValueError("I/O operation on closed selector")
        poller_close(&self.poller)
        error = poller_open(&self.poller)
        if error < 0:
            raise_errno(error)
        self.generation = fork_generation()
        for key in self.keys:
            if key is not None:
                # A descriptor that the child has closed meanwhile can be ready no more; its key waits for unregister().
                poller_add(&self.poller, key.fd, key.events)
        return 0

    # -- one level below select(), for the loop ------------------------------------------------------------------------

    cdef poller_batch *wait(self, int64_t nanoseconds, bint release_gil, int *count) except NULL:
        """Wait; the events are in the batch, `count` of them, and the batch must be given back by release().

        Interrupted by a signal: its Python handler has run and `count` is negative."""
        cdef poller_batch *batch
        self.own()
        batch = self.spare
        self.spare = NULL
        if batch == NULL or batch.capacity <= self.registered:
            free(batch)
            batch = poller_batch_new(<int>min(2 * self.registered + 2, 1 << 30))
            if batch == NULL:
                raise MemoryError()
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
                self.release(batch)
                raise
        return batch

    cdef object event(self, poller_batch *batch, int index, int *mask):
        """The key of event `index` and its events; None for one that nobody waits for any more."""
        cdef int fd = -1
        cdef int events = poller_event(&self.poller, batch, index, &fd)
        cdef object key
        if events == 0:
            return None
        key = self.key(fd)
        if key is not None:
            mask[0] = events & events_of(key)
        return key

    cdef void release(self, poller_batch *batch) noexcept:
        # Two threads may select at once; one of the two batches is enough to keep.
        free(self.spare)
        self.spare = batch

    cdef int wake(self) except -1:
        """End the wait under way, or the next one. May be called from any thread and from a signal handler."""
        cdef int error
        if self.poller.fd < 0 or self.generation != fork_generation():
            # Closed; or the waker is the parent's, and nothing waits in this process yet.
            return 0
        error = poller_wake(&self.poller)
        if error < 0:
            raise_errno(error)
        return 0


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


install_instance_dict(<PyTypeObject *>PollerSelector)
install_instance_dict(<PyTypeObject *>EpollSelector)

# Not BaseSelector.register(), which is the method of a selector.
ABCMeta.register(selectors.BaseSelector, PollerSelector)

if BACKEND == "epoll":
    DefaultSelector = EpollSelector
else:
    DefaultSelector = selectors.DefaultSelector
    del globals()["EpollSelector"]
