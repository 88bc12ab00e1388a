"""add_reader() and add_writer(): a callback for each direction of a descriptor.

Level-triggered, as users of these methods expect: as long as there is something to read, the reader is called in each
iteration.

Pipe transports register here, too, because two of them, or one and a callback, may share a descriptor: a terminal or a
serial line is read and written through the same one.
"""

cimport cython
from cpython.object cimport PyTypeObject

from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE, Watcher
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable, push


@cython.no_gc_clear
cdef class CallbackWatcher(Watcher):
    """The reader and the writer of one descriptor: each is a callback's Handle, a transport, or None."""
    cdef PollerSelector poller
    cdef int fd
    cdef object file                # the file object that a callback was added for, or the descriptor
    cdef ReadyQueue ready           # the queue for callbacks; None before the first callback is added
    cdef Runnable reader
    cdef Runnable writer

    cdef int on_events(self, int events) except -1:
        cdef int unwanted = events & (POLLER_READ | POLLER_WRITE) & ~self.interest()
        if unwanted:
            self.drop_unwanted_events()
        if events & POLLER_READ and self.reader is not None:
            self.queue_callback(POLLER_READ, self.reader)
        if events & POLLER_WRITE and self.writer is not None:
            self.queue_callback(POLLER_WRITE, self.writer)
        return 0

    cdef int drop_unwanted_events(self) except -1:
        """Have the kernel report only what a receiver wants."""
        cdef int wanted = self.interest()
        if self.poller.entry(self.fd) is not self:
            return 0
        try:
            if wanted:
                # Not change(): another file may have the number by now, which no receiver waits for.
                self.poller.change_same_file(self.fd, wanted)
            else:
                self.poller.change(self.fd, 0)
        except OSError:
            # Closed in this process, but still open elsewhere: the registration is dropped.
            pass
        return 0

    cdef int queue_callback(self, int event, Runnable receiver) except -1:
        if isinstance(receiver, Watcher):
            (<Watcher>receiver).on_events(event)
        elif receiver.is_cancelled():
            # The program cancelled the handle instead of calling remove_reader(): the event would be reported for ever.
            if self.poller.entry(self.fd) is self:
                remove_callback(self.poller, self.fd, event)
        else:
            push(self.ready, receiver)
        return 0

    cdef object data(self):
        # Code that passes select()'s events to the handles itself, as asyncio does, expects a pair of handles here. It
        # cannot run transports: for those, Polling._process_events() finds the watcher.
        cdef Runnable reader, writer
        # Another thread may be counting what the loop watches.
        with cython.critical_section(self):
            reader = self.reader
            writer = self.writer
        if (reader is None and writer is None) or isinstance(reader, Watcher) or isinstance(writer, Watcher):
            return self
        return reader, writer

    cdef object fileobj(self, int fd):
        return self.file

    cdef bint waits_for(self, object sock) except -1:
        # Of a mere number it is not known whether its file was closed.
        if self.file is sock or isinstance(self.file, int):
            return True
        try:
            found = self.file.fileno()
        except Exception:
            # Closed: a socket has -1 then, a file raises ValueError, and a multiprocessing.Connection OSError.
            found = None
        return found == self.fd

    cdef Runnable receiver(self, int event):
        return self.reader if event == POLLER_READ else self.writer

    cdef Runnable replace(self, int event, Runnable receiver):
        """Set the receiver of one direction; return the previous one."""
        cdef Runnable before = self.receiver(event)
        with cython.critical_section(self):
            if event == POLLER_READ:
                self.reader = receiver
            else:
                self.writer = receiver
        return before

    cdef int interest(self) noexcept:
        return (POLLER_READ if self.reader is not None else 0) | (POLLER_WRITE if self.writer is not None else 0)


cdef CallbackWatcher callback_watcher(PollerSelector poller, int fd):
    """The callbacks of a descriptor, or None. RuntimeError if what else is registered does not yield."""
    cdef object entry = poller.entry(fd)
    if entry is None or type(entry) is CallbackWatcher:
        return entry
    if not isinstance(entry, Watcher):
        raise RuntimeError(f"File descriptor {fd} is used by {entry!r}")
    (<Watcher>entry).yield_to_callback()
    return poller.entry(fd)


cdef int wait_by_callbacks(PollerSelector poller, int fd) except -1:
    """Have whatever waits for the descriptor wait by callbacks from now on."""
    callback_watcher(poller, fd)
    return 0


cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle):
    """Queue `handle` whenever `event` is reported, in place of the previous receiver: a handle that is cancelled."""
    cdef int fd = poller.descriptor_to_add(fileobj)
    cdef CallbackWatcher watcher = callback_watcher(poller, fd)
    if watcher is None:
        watcher = new_watcher(poller, fd, event, handle)
        watcher.file = fileobj
        watcher.ready = ready
        poller.attach(fd, watcher, event)
        return handle
    # Even if the events stay the same: the number may be another file's by now, unknown to the kernel's set. The other
    # event's receiver does not wait for that file: then both are dropped with an error, as under asyncio.
    if watcher.interest() & ~event:
        poller.change_same_file(fd, watcher.interest() | event)
    else:
        poller.change(fd, event)
    watcher.ready = ready
    if not isinstance(fileobj, int):
        watcher.file = fileobj
    cancel_if_handle(watcher.replace(event, handle))
    return handle


cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1:
    """Stop calling back for `event`, even if it was reported already. False if there was no receiver."""
    cdef int fd = poller.descriptor(fileobj)
    cdef CallbackWatcher watcher = callback_watcher(poller, fd)
    cdef Runnable before
    if watcher is None:
        return False
    before = watcher.replace(event, None)
    if watcher.interest() == 0:
        poller.detach(fd)
    elif before is not None:
        # As in drop_unwanted_events(). The error is the caller's, as under asyncio.
        poller.change_same_file(fd, watcher.interest())
    if before is None:
        return False
    cancel_if_handle(before)
    return True


cdef CallbackWatcher new_watcher(PollerSelector poller, int fd, int event, Runnable receiver):
    cdef CallbackWatcher watcher = CallbackWatcher.__new__(CallbackWatcher)
    watcher.poller = poller
    watcher.fd = watcher.file = fd
    watcher.replace(event, receiver)
    return watcher


cdef int cancel_if_handle(Runnable receiver) except -1:
    # A transport is left as it is, because it may be added again.
    if isinstance(receiver, Handle):
        (<Handle>receiver).cancel()
    return 0


# -- for transports ----------------------------------------------------------------------------------------------------

cdef int set_receiver(PollerSelector poller, int fd, int event, Watcher receiver) except -1:
    """Pass `event` to a transport whenever it is reported, in place of the previous receiver.

    OSError if the kernel refuses; then nothing is registered for the descriptor."""
    cdef CallbackWatcher watcher = callback_watcher(poller, fd)
    cdef Runnable before
    if watcher is None:
        poller.attach(fd, new_watcher(poller, fd, event, receiver), event)
        return 0
    before = watcher.replace(event, receiver)
    if before is not receiver:
        cancel_if_handle(before)
        # As in add_callback().
        poller.change(fd, watcher.interest())
    return 0


cdef int remove_receiver(PollerSelector poller, int fd, int event, Watcher receiver) except -1:
    """Stop passing `event` to a transport, if it still is the receiver.

    The kernel's set stays as it is until it reports an unwanted event, because set_receiver() often follows soon. But
    not if the descriptor has another receiver: it may be closed by then, while its file lives on, and the set cannot be
    changed any more without losing that receiver's events."""
    cdef object entry = poller.entry(fd)
    cdef CallbackWatcher watcher
    if type(entry) is CallbackWatcher and (<CallbackWatcher>entry).receiver(event) is receiver:
        watcher = entry
        watcher.replace(event, None)
        if watcher.interest():
            watcher.drop_unwanted_events()
    return 0


cdef Runnable receiver_of(PollerSelector poller, int fd, int event):
    """The receiver of `event`: a Handle, a transport, or None."""
    cdef object entry = poller.entry(fd)
    return (<CallbackWatcher>entry).receiver(event) if type(entry) is CallbackWatcher else None


cdef int detach_if_unused(PollerSelector poller, int fd) except -1:
    """Detach a descriptor if remove_receiver() has left no receiver; the caller may close it next."""
    cdef object entry = poller.entry(fd)
    if type(entry) is CallbackWatcher and (<CallbackWatcher>entry).interest() == 0:
        poller.detach(fd)
    return 0


remove_constructor(<PyTypeObject *>CallbackWatcher)
