"""add_reader() and add_writer(): a callback for each direction of a descriptor.

Level-triggered, as users of these methods expect: as long as there is something to read, the reader is called in each
iteration.

The transports of pipes take their places here, too, because two of them, or one and a callback, may share a descriptor:
a terminal or a serial line is read and written through one.
"""

from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.scheduler.ready_queue cimport Handle, ReadyQueue, Runnable, push


cdef class CallbackWatcher(Watcher):
    """The reader and the writer of one descriptor: each a callback's Handle, a transport to be told itself, or None."""
    cdef PollerSelector poller
    cdef int fd
    cdef object file                # the file object that a callback was added for, or the descriptor
    cdef ReadyQueue ready           # where callbacks are queued; None until there is one
    cdef Runnable reader
    cdef Runnable writer

    cdef int on_events(self, int events) except -1:
        cdef int unwanted = events & (POLLER_READ | POLLER_WRITE) & ~self.interest()
        if unwanted:
            self.withdraw_interest()
        if events & POLLER_READ and self.reader is not None:
            self.queue_callback(POLLER_READ, self.reader)
        if events & POLLER_WRITE and self.writer is not None:
            self.queue_callback(POLLER_WRITE, self.writer)
        return 0

    cdef int withdraw_interest(self) except -1:
        """A transport has gone by remove_watcher(): have no more reported than is wanted."""
        if self.poller.entry(self.fd) is self:
            try:
                self.poller.change(self.fd, self.interest())
            except OSError:
                # Closed here, while another process has it open: nothing is registered any more.
                pass
        return 0

    cdef int queue_callback(self, int event, Runnable receiver) except -1:
        if isinstance(receiver, Watcher):
            (<Watcher>receiver).on_events(event)
        elif receiver.is_cancelled():
            # By its handle, not by remove_reader(): it would be reported for ever.
            if self.poller.entry(self.fd) is self:
                remove_callback(self.poller, self.fd, event)
        else:
            push(self.ready, receiver)
        return 0

    cdef object data(self):
        # Who takes select()'s events to the handles himself, as asyncio does, has to leave transports to us.
        if self.interest() == 0 or isinstance(self.reader, Watcher) or isinstance(self.writer, Watcher):
            return self
        return self.reader, self.writer

    cdef object fileobj(self, int fd):
        return self.file

    cdef Runnable receiver(self, int event):
        return self.reader if event == POLLER_READ else self.writer

    cdef Runnable replace(self, int event, Runnable receiver):
        """Set who is told of one direction; returns who was."""
        cdef Runnable before = self.receiver(event)
        if event == POLLER_READ:
            self.reader = receiver
        else:
            self.writer = receiver
        return before

    cdef int interest(self) noexcept:
        return (POLLER_READ if self.reader is not None else 0) | (POLLER_WRITE if self.writer is not None else 0)


cdef CallbackWatcher watcher_of(PollerSelector poller, int fd):
    """The callbacks of a descriptor, or None. RuntimeError if it is registered by somebody else."""
    cdef object entry = poller.entry(fd)
    if entry is None or type(entry) is CallbackWatcher:
        return entry
    if not isinstance(entry, Watcher):
        raise RuntimeError(f"File descriptor {fd} is used by {entry!r}")
    (<Watcher>entry).yield_to_callback()
    return poller.entry(fd)


cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle):
    """Call back whenever `event` is reported, in place of whoever was called back for it, who is cancelled."""
    cdef int fd = poller.descriptor(fileobj)
    cdef CallbackWatcher watcher = watcher_of(poller, fd)
    if watcher is None:
        watcher = new_watcher(poller, fd, event, handle)
        watcher.file = fileobj
        watcher.ready = ready
        poller.attach(fd, watcher, event)
        return handle
    # Also where the interest stays the same: the number may be another file's by now, and new to the kernel.
    poller.change(fd, watcher.interest() | event)
    watcher.ready = ready
    if not isinstance(fileobj, int):
        watcher.file = fileobj
    dismiss(watcher.replace(event, handle))
    return handle


cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1:
    """Stop calling back for `event`, at once: also if it was reported already. False if nobody was to be called."""
    cdef int fd = poller.descriptor(fileobj)
    cdef CallbackWatcher watcher = watcher_of(poller, fd)
    cdef Runnable before
    if watcher is None:
        return False
    before = watcher.replace(event, None)
    if watcher.interest() == 0:
        poller.detach(fd)
    elif before is not None:
        poller.change(fd, watcher.interest())
    if before is None:
        return False
    dismiss(before)
    return True


cdef CallbackWatcher new_watcher(PollerSelector poller, int fd, int event, Runnable receiver):
    cdef CallbackWatcher watcher = CallbackWatcher.__new__(CallbackWatcher)
    watcher.poller = poller
    watcher.fd = watcher.file = fd
    watcher.replace(event, receiver)
    return watcher


cdef int dismiss(Runnable receiver) except -1:
    # A transport may come back: see add_watcher().
    if isinstance(receiver, Handle):
        (<Handle>receiver).cancel()
    return 0


# -- for transports ----------------------------------------------------------------------------------------------------

cdef int add_watcher(PollerSelector poller, int fd, int event, Watcher receiver, bint known) except -1:
    """Tell a transport whenever `event` is reported, in place of whoever was told. `known`: it was told before.

    OSError if the kernel refuses; then nobody is told of anything."""
    cdef CallbackWatcher watcher = watcher_of(poller, fd)
    if watcher is None:
        poller.attach(fd, new_watcher(poller, fd, event, receiver), event)
        return 0
    dismiss(watcher.replace(event, receiver))
    if not known or watcher.interest() & ~poller.registrations[fd].events:
        poller.change(fd, watcher.interest())
    return 0


cdef int remove_watcher(PollerSelector poller, int fd, int event, Watcher receiver) except -1:
    """Tell a transport no more, if it still is the one who is told.

    The kernel's set is left as it is until it reports what nobody wants, because add_watcher() often follows soon."""
    cdef object entry = poller.entry(fd)
    if type(entry) is CallbackWatcher and (<CallbackWatcher>entry).receiver(event) is receiver:
        (<CallbackWatcher>entry).replace(event, None)
    return 0


cdef Runnable watcher_for(PollerSelector poller, int fd, int event):
    """Who is told of `event`: a Handle, a transport, or None."""
    cdef object entry = poller.entry(fd)
    return (<CallbackWatcher>entry).receiver(event) if type(entry) is CallbackWatcher else None


cdef int detach_if_unused(PollerSelector poller, int fd) except -1:
    """Forget a descriptor of which remove_watcher() has left nobody; it may be closed next."""
    cdef object entry = poller.entry(fd)
    if type(entry) is CallbackWatcher and (<CallbackWatcher>entry).interest() == 0:
        poller.detach(fd)
    return 0
