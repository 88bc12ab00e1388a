"""Unflushed: the transports that callbacks of the running batch have written to.

At the end of the batch each sends all that was written to it, in one system call.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.watcher cimport Watcher


@cython.final
cdef class Unflushed:
    """The list of a loop's watchers with data to send."""

    def __cinit__(self):
        self.watchers = []

    cdef int add(self, Watcher watcher) except -1:
        """Call the watcher's flush() at the end of this batch."""
        if self.count < PyList_GET_SIZE(self.watchers):
            self.watchers[self.count] = watcher
        else:
            self.watchers.append(watcher)
        self.count += 1
        return 0

    cdef int flush(self, LoopState loop) except -1:
        """Have each watcher send. Not in a forked child: the parent sends what was written before the fork."""
        cdef bint own = loop.poller is not None and not loop.is_inherited_by_fork()
        cdef list watchers
        cdef Py_ssize_t count, index
        cdef Watcher watcher
        cdef object failure = None
        # A resume_writing() may write again, and so fill the other list, or even run the loop.
        while self.count:
            watchers = self.watchers
            count = self.count
            self.watchers = [] if self.spare is None else self.spare
            self.spare = None
            self.count = 0
            index = 0
            while index < count:
                try:
                    while index < count:
                        watcher = <Watcher>PyList_GET_ITEM(watchers, index)
                        watchers[index] = None
                        index += 1
                        if own:
                            watcher.flush()
                except BaseException as error:
                    # Raised when all have sent. An exception that ends the run of the loop takes precedence.
                    raised = report(loop, error)
                    if raised is not None and not isinstance(failure, (SystemExit, KeyboardInterrupt)):
                        failure = raised
            self.spare = watchers
        if failure is not None:
            raise failure
        return 0


cdef object report(LoopState loop, object error):
    """Report what flush() has raised, which is no callback's error. Returns an exception for flush() to raise,
    or None."""
    cdef object raised = error
    if not isinstance(error, (SystemExit, KeyboardInterrupt)):
        try:
            loop.call_exception_handler(
                {"message": "Exception while data was sent at the end of a turn", "exception": error}
            )
            raised = None
        except BaseException as failure:
            raised = failure
    return raised
