"""The selectors API on the kernel's own readiness interface.

A drop-in for `selectors.DefaultSelector`: the same methods, exceptions and rounding, and `isinstance` against
`selectors.BaseSelector` holds. It is faster because a table finds a registered key by its descriptor number, without
hashing, and because one buffer for the kernel's events lives as long as the selector.

The loop uses the same object one level below `select()`, as a Poller. The map shows the loop's Watchers as keys, too.

Source: the documentation of `selectors`; epoll(7), kqueue(2).
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.limits cimport INT_MAX
from libc.math cimport ceil, isnan
from libc.stdint cimport INT64_MAX, int64_t

from hotloop._c.poller.poller cimport Poller, poller_batch
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_is_absent,
    instance_dict_set,
)
from hotloop._c.scheduler.ready_queue cimport NO_VERSION, type_version_of

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

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_6poller_8selector_PollerSelector
    """

cdef extern from "system/clock.h":
    int64_t clock_nanoseconds()

BACKEND = (<bytes>POLLER_NAME).decode()
"""The kernel interface that this build uses: "epoll", "kqueue", or "": none. "kqueue-shim" is the tests' replacement
for kqueue on Linux."""

cdef object SelectorKey = selectors.SelectorKey


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
        return len(selector_of(self).descriptors_in_map())

    def get(self, fileobj, default=None):
        cdef PollerSelector selector = selector_of(self)
        cdef object key = selector.key(selector.descriptor(fileobj))
        return default if key is None else key

    def __getitem__(self, fileobj):
        cdef PollerSelector selector = selector_of(self)
        cdef object key = selector.key(selector.descriptor(fileobj))
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        return key

    def __iter__(self):
        return iter(selector_of(self).descriptors_in_map())


cdef PollerSelector selector_of(object mapping):
    """TypeError if a program has made the mapping for something else."""
    cdef object selector = mapping._selector
    if not isinstance(selector, PollerSelector):
        raise TypeError(f"expected a selector, got {selector!r}")
    return selector


@cython.no_gc_clear
cdef class PollerSelector(Poller):
    """The selector, whatever the backend."""

    def __cinit__(self):
        instance_dict_clear(self)
        self.type_version = NO_VERSION
        self.map = SelectorMapping(self)

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
        cdef int fd = self.descriptor_to_add(fileobj)
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
        cdef int wanted
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
            # Not change(), which would register a new file that has the number by now. Other bits are ignored, as in
            # the standard library; one of them would mean POLLER_EDGE here.
            self.change_same_file(fd, wanted & (POLLER_READ | POLLER_WRITE))
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
        cdef list entries = []
        self.close_set()
        # Another thread may be counting them.
        with cython.critical_section(self):
            self.entries, entries = entries, self.entries
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
        self.number_taken = True
        return self.poller.fd

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    cdef int descriptor_to_add(self, object fileobj) except -1:
        cdef int fd = self.descriptor(fileobj)
        if fd < 0:
            raise OverflowError("Python int too large to convert to C int")
        return fd

    cdef int descriptor(self, object fileobj) except? -1:
        """The descriptor of a file object. If the file object is closed: the descriptor that it was registered with.
        -1, for which nothing is registered, for a number that no file has."""
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

    cdef bint select_is_original(self) except -1:
        """True as long as neither a subclass nor the program has replaced select(), so that the loop may bypass it."""
        if self.type_version != type_version_of(self):
            self.class_select_is_original = type(self).select is PollerSelector.select
            self.type_version = type_version_of(self) or NO_VERSION
        if not self.class_select_is_original:
            return False
        return instance_dict_is_absent(self) or "select" not in instance_dict_get(self)


cdef int check_events(object events) except -1:
    if not events or events & ~(POLLER_READ | POLLER_WRITE):
        raise ValueError(f"Invalid events: {events!r}")
    return events


cdef int descriptor_of(object fileobj) except? -1:
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
    return number if number <= INT_MAX else -1


@cython.no_gc_clear
cdef class EpollSelector(PollerSelector):
    """`selectors.EpollSelector` on epoll_wait(2), Linux."""


@cython.no_gc_clear
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


# Poller's. A class without one inherits none.
(<PyTypeObject *>PollerSelector).tp_clear = (<PyTypeObject *>Poller).tp_clear
(<PyTypeObject *>EpollSelector).tp_clear = (<PyTypeObject *>Poller).tp_clear
(<PyTypeObject *>KqueueSelector).tp_clear = (<PyTypeObject *>Poller).tp_clear
instance_dict_install(<PyTypeObject *>PollerSelector)
instance_dict_install(<PyTypeObject *>EpollSelector)
instance_dict_install(<PyTypeObject *>KqueueSelector)

# Not BaseSelector.register(), which is the method of a selector.
ABCMeta.register(selectors.BaseSelector, PollerSelector)

DefaultSelector = {"": selectors.DefaultSelector, "epoll": EpollSelector}.get(BACKEND, KqueueSelector)
for unused in (EpollSelector, KqueueSelector):
    if unused is not DefaultSelector:
        del globals()[unused.__name__]
del unused
