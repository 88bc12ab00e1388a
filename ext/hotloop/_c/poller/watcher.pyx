"""Watcher: what the poller's events of one descriptor go to.

A transport, a listening socket, a subprocess's pidfd is one; so is the pair of callbacks of add_reader() and
add_writer(). The selector keeps a watcher for each descriptor and knows nothing else of it.

LoopPolling.dispatch() and on_events() share out the events of a poll like this:

- The loop holds the watcher while on_events() runs, which may have the selector forget it.
- on_events() sets what says that the watcher is queued, or was told, after what may fail, so that an exception means
  that the event was not told. The loop then has the kernel report an edge-triggered event once more (a level-triggered
  one comes again by itself), tells the exception handler, and goes on with the next event. KeyboardInterrupt and
  SystemExit leave the loop, after the same was done for all events that are left.
- What a watcher remembers of an event, to queue itself again later, it may lose in the same way:
  PollerSelector.repeat() has the kernel report it.
"""

from hotloop._c.scheduler.ready_queue cimport Runnable


cdef class Watcher(Runnable):
    cdef int on_events(self, int events) except -1:
        """Note what the poller reports (POLLER_READ, POLLER_WRITE, POLLER_MORE), and queue what has to be done.

        No code of the program's is called: the other events of the same poll are yet to come. On an exception the event
        counts as not told: see above."""
        raise NotImplementedError

    cdef int flush(self) except -1:
        """Give the kernel what was written in this turn of the loop: see LoopCore.flush()."""
        raise NotImplementedError

    cdef object data(self):
        """What the selector's map shows as the data of this descriptor."""
        return self

    cdef object fileobj(self, int fd):
        """What the selector's map shows as the file object of this descriptor."""
        return fd

    cdef bint is_idle(self) noexcept:
        """True if nobody waits for anything, and the descriptor is registered only because somebody may soon."""
        return False

    cdef int yield_to_callback(self) except -1:
        """Somebody calls add_reader() or the like for the descriptor: take its place among the callbacks, or refuse."""
        raise RuntimeError(f"The file descriptor is used by {self!r}")
