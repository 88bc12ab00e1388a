"""Watcher: what the poller's events of one descriptor go to.

A transport, a listening socket, a subprocess's pidfd is one; so is the pair of callbacks of add_reader() and
add_writer(). The selector keeps a watcher for each descriptor and knows nothing else of it.
"""

from hotloop._c.ready cimport Runnable

cdef extern from "quiet.h":
    pass


cdef class Watcher(Runnable):
    cdef int happened(self, int events) except -1:
        """Note what the poller reports (POLLER_READ, POLLER_WRITE, POLLER_MORE), and queue what has to be done.

        Nothing that could change what is watched: the other events of the same poll are yet to come."""
        raise NotImplementedError

    cdef int flush(self) except -1:
        """Give the kernel what was written in this turn of the loop: see LoopCore.flush()."""
        raise NotImplementedError

    cdef object data(self):
        """What the selector's map shows as the data of this descriptor."""
        return self

    cdef bint is_idle(self) noexcept:
        """True if nobody waits for anything, and the descriptor is registered only because somebody may soon."""
        return False

    cdef int give_way(self) except -1:
        """Somebody calls add_reader() or the like for the descriptor: take its place among the callbacks, or refuse."""
        raise RuntimeError(f"The file descriptor is used by {self!r}")
