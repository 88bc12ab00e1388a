"""add_reader() and add_writer(): a callback for each direction of a descriptor.

Level-triggered, as users of these methods expect: as long as there is something to read, the reader is called in each
iteration.
"""

from hotloop._c.ready cimport Handle, ReadyQueue, push
from hotloop._c.selector cimport PollerSelector
from hotloop._c.watcher cimport POLLER_READ, POLLER_WRITE, Watcher

cdef extern from "quiet.h":
    pass


cdef class CallbackWatcher(Watcher):
    """The reader and the writer of one descriptor; one of them may be absent, not both."""
    cdef PollerSelector poller
    cdef int fd
    cdef ReadyQueue ready
    cdef Handle reader
    cdef Handle writer

    cdef int happened(self, int events) except -1:
        if events & POLLER_READ and self.reader is not None:
            self.call(POLLER_READ, self.reader)
        if events & POLLER_WRITE and self.writer is not None:
            self.call(POLLER_WRITE, self.writer)
        return 0

    cdef int call(self, int event, Handle handle) except -1:
        if handle.is_cancelled():
            # By somebody who did not go through remove_reader(). It would be reported for ever.
            remove_callback(self.poller, self.fd, event)
        else:
            push(self.ready, handle)
        return 0

    cdef object data(self):
        return self.reader, self.writer

    cdef Handle replace(self, int event, Handle handle):
        """Set the callback of one direction; returns what it was."""
        cdef Handle before
        if event == POLLER_READ:
            before = self.reader
            self.reader = handle
        else:
            before = self.writer
            self.writer = handle
        return before

    cdef int interest(self) noexcept:
        return (POLLER_READ if self.reader is not None else 0) | (POLLER_WRITE if self.writer is not None else 0)


cdef CallbackWatcher watcher_of(PollerSelector poller, int fd):
    """The callbacks of a descriptor, or None. RuntimeError if it is registered by somebody else."""
    cdef object entry = poller.entry(fd)
    if entry is None or type(entry) is CallbackWatcher:
        return entry
    raise RuntimeError(f"File descriptor {fd} is used by {entry!r}")


cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle):
    """Call back whenever `event` is reported, in place of whoever was called back for it, who is cancelled."""
    cdef int fd = poller.descriptor(fileobj)
    cdef CallbackWatcher watcher = watcher_of(poller, fd)
    cdef Handle before
    if watcher is None:
        watcher = CallbackWatcher.__new__(CallbackWatcher)
        watcher.poller = poller
        watcher.fd = fd
        watcher.ready = ready
        watcher.replace(event, handle)
        poller.attach(fd, watcher, event)
        return handle
    before = watcher.replace(event, handle)
    if before is not None:
        before.cancel()
    # Also where the interest stays the same: the number may be another file's by now, which the kernel does not know of.
    poller.change(fd, watcher.interest())
    return handle


cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1:
    """Stop calling back for `event`, at once: also if it was reported already. False if nobody was to be called."""
    cdef int fd = poller.descriptor(fileobj)
    cdef CallbackWatcher watcher = watcher_of(poller, fd)
    cdef Handle before
    if watcher is None:
        return False
    before = watcher.replace(event, None)
    if watcher.interest() == 0:
        poller.detach(fd)
    elif before is not None:
        poller.change(fd, watcher.interest())
    if before is None:
        return False
    before.cancel()
    return True
