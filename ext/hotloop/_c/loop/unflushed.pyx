"""Unflushed: the transports that callbacks of the running batch have written to.

At the end of the batch each sends all that was written to it, in one system call. Before a datagram, a write to a pipe
or an attempt of a sock_*() method each sends earlier: none of these may overtake it. A callback may run this loop, or
another one of this kind. That may wait for the answer, so each sends before it polls, too.

A callback may fork, and the child may write. As under asyncio, which sends at once, what was written before the fork
must reach the peer before that, and once. So it is sent just before the fork: by a handler in C, because a hook in
Python would slow down each fork of the program, also where no loop runs. What the handler cannot send, the parent
sends, and the child drops. A child's writes do not wait until the child has polled.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.string cimport memmove

from hotloop._c.loop.state cimport LoopState
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.runtime.references cimport steal

cdef extern from *:
    """
    #include <pthread.h>

    /* Of the innermost loop that runs callbacks in this thread; borrowed from it. NULL: none does. */
    static _Thread_local PyObject *unflushed_here = NULL;

    #define set_unflushed_here(unflushed) (unflushed_here = (unflushed))
    #define this_thread() ((void *)&unflushed_here)

    static void (*send_unflushed)(void) = NULL;

    /* A thread without the GIL runs no callback. */
    static void unflushed_before_fork(void)
    {
        if (unflushed_here != NULL && PyGILState_Check())
            send_unflushed();
    }

    static int unflushed_watch_forks(void (*send)(void))
    {
        send_unflushed = send;
        return pthread_atfork(unflushed_before_fork, NULL, NULL);
    }
    """
    PyObject *unflushed_here
    void set_unflushed_here(PyObject *)
    void *this_thread() noexcept
    int unflushed_watch_forks(void (*send)() noexcept)


@cython.final
cdef class Unflushed:
    """The list of a loop's watchers with data to send. It is empty unless the loop runs, so the garbage collector need
    not look into it."""

    def __dealloc__(self):
        while self.count:
            Py_DECREF(<object>self.take())
        PyMem_Free(self.watchers)

    cdef int add(self, Watcher watcher) except -1:
        """Call the watcher's flush() at the end of this batch. MemoryError."""
        if self.first + self.count == self.capacity and not self.make_room():
            raise MemoryError
        Py_INCREF(watcher)
        self.watchers[self.first + self.count] = <PyObject *>watcher
        self.count += 1
        return 0

    cdef bint make_room(self) noexcept:
        """Make room for one more at the end. False: there is no memory."""
        cdef Py_ssize_t capacity
        cdef PyObject **watchers
        if self.first > self.count:
            memmove(self.watchers, &self.watchers[self.first], self.count * sizeof(PyObject *))
            self.first = 0
            return True
        capacity = max(2 * self.capacity, 16)
        watchers = <PyObject **>PyMem_Realloc(self.watchers, capacity * sizeof(PyObject *))
        if watchers == NULL:
            return False
        self.watchers = watchers
        self.capacity = capacity
        return True

    cdef PyObject *take(self) noexcept:
        """Remove the first, and return its reference. The caller has checked that there is one."""
        cdef PyObject *watcher = self.watchers[self.first]
        self.count -= 1
        self.first = self.first + 1 if self.count else 0
        return watcher

    cdef int send_early(self) noexcept:
        """Before something else leaves the process that must not overtake what was written: send what the kernel takes.
        flush() still comes."""
        cdef Py_ssize_t index
        for index in range(self.first, self.first + self.count):
            (<Watcher>self.watchers[index]).send_early()
        return 0

    cdef int flush(self, LoopState loop) except -1:
        """Have each watcher send. Not in a forked child: the parent sends what was written before the fork, and what
        the child writes does not wait."""
        cdef Watcher watcher
        cdef object failure = None
        while self.count:
            try:
                # A resume_writing() may write, which adds a watcher, or even run the loop, which flushes the rest.
                while self.count:
                    watcher = <Watcher>steal(self.take())
                    if loop.is_inherited_by_fork():
                        watcher.leave_to_parent()
                    elif loop.poller is not None:
                        watcher.flush()
            except BaseException as error:
                # Raised when all have sent. An exception that ends the run of the loop takes precedence.
                raised = report(loop, error)
                if raised is not None and not isinstance(failure, (SystemExit, KeyboardInterrupt)):
                    failure = raised
        if failure is not None:
            raise failure
        return 0


cdef bint enter_batch(Unflushed unflushed) noexcept:
    """This thread begins to run callbacks of the loop that holds `unflushed`. Returns whether leave_batch() has to
    follow; it has not while another thread runs callbacks of the loop, too, because `unflushed` is in that thread's
    list."""
    if unflushed.batches == 0:
        unflushed.thread = this_thread()
        unflushed.outer = unflushed_here
        set_unflushed_here(<PyObject *>unflushed)
    elif unflushed.thread != this_thread():
        return False
    unflushed.batches += 1
    return True


cdef void leave_batch(Unflushed unflushed) noexcept:
    cdef PyObject *inner = unflushed_here
    unflushed.batches -= 1
    if unflushed.batches:
        return
    if inner == <PyObject *>unflushed:
        set_unflushed_here(unflushed.outer)
        return
    # Greenlets that run loops may end in any order.
    while inner != NULL:
        if (<Unflushed>inner).outer == <PyObject *>unflushed:
            (<Unflushed>inner).outer = unflushed.outer
            return
        inner = (<Unflushed>inner).outer


cdef void send_all_early() noexcept:
    """Before a poll, before something else leaves the process, and before a fork (then called by the C library): send
    what the callbacks that are running in this thread have written, of whichever loop."""
    cdef PyObject *unflushed = unflushed_here
    while unflushed != NULL:
        (<Unflushed>unflushed).send_early()
        unflushed = (<Unflushed>unflushed).outer


if unflushed_watch_forks(send_all_early) != 0:
    raise MemoryError("pthread_atfork() failed")


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
