"""Watcher: receives the poller's events of one descriptor.

A transport is a watcher. A subprocess's pidfd, the sock_*() methods that wait for a socket, and the callbacks of
add_reader() and add_writer(), such as a listening socket's, have one each. The selector keeps one watcher for each
descriptor, and knows nothing else about it. (A TlsProtocol is a watcher only for flush() and its like: no descriptor is
its own.)

Polling.dispatch() and on_events() agree on the following:

- The loop holds a reference to the watcher while on_events() runs, because on_events() may detach it.
- on_events() does whatever may fail first, and only then records that the watcher is queued or has seen the event. So
  an exception means that the event is not handled. The loop then has the kernel report an edge-triggered event again (a
  level-triggered one is reported again in any case), calls the exception handler, and goes on with the next event.
  KeyboardInterrupt and SystemExit leave the loop, after the kernel was asked to repeat all events that are left.
- A watcher that has queued itself, but then cannot handle the event or does so only in part, calls Poller.rearm(): the
  kernel reports the event again at the next poll, as it would a level-triggered one.
"""

from hotloop._c.scheduler.ready_queue cimport Runnable


cdef class Watcher(Runnable):
    cdef int on_events(self, int events) except -1:
        """Note what the poller reports (POLLER_READ, POLLER_WRITE, POLLER_MORE), and queue the work.

        Must not call the program's code, because other events of the same poll are still to be dispatched. If it
        raises, the event counts as not handled: see above."""
        raise NotImplementedError

    cdef int flush(self) except -1:
        """Send what callbacks have written in this turn: see loop/unflushed.pyx."""
        raise NotImplementedError

    cdef int send_early(self) noexcept:
        """Just before this thread forks, or sends in another way: send what the kernel takes at once, without Python
        code. flush() still comes."""
        return 0

    cdef int leave_to_parent(self) except -1:
        """In a forked child: drop what was to be sent at the end of the turn, because the parent sends it."""
        raise NotImplementedError

    cdef object data(self):
        """The `data` of this descriptor's key in the selector's map."""
        return self

    cdef object fileobj(self, int fd):
        """The `fileobj` of this descriptor's key in the selector's map."""
        return fd

    cdef bint is_idle(self) noexcept:
        """True if it waits for no event, and is registered only because it may soon wait again."""
        return False

    cdef bint waits_for(self, object sock) except -1:
        """Whether the program waits for this socket by a callback or a sock_*() method: that goes on beside a
        transport. False if it has closed the one that it waited for, and this one has its number now."""
        return False

    cdef int yield_to_callback(self) except -1:
        """Called when add_reader() or the like needs the descriptor: wait by callbacks from now on, or raise."""
        raise RuntimeError(f"The file descriptor is used by {self!r}")
