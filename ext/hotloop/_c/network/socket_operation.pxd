from cpython.object cimport PyObject

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.scheduler.ready_queue cimport Handle
from hotloop._c.tasks.future cimport Future

cdef class SocketOperation

# Try to do it: a new reference to the result, or NULL without an exception if the socket is not ready for it.
ctypedef PyObject *(*attempt_function)(SocketOperation) except? NULL


cdef enum Stage:
    CREATED
    WAITING
    CLOSED                          # done, failed, closed, or being attempted


cdef class SocketOperation:
    cdef object __weakref__
    cdef LoopCore loop
    cdef str name                   # of the loop's method
    cdef attempt_function attempt
    cdef object sock
    cdef object argument            # what the method was called with
    cdef object other               # and its second argument, if it has one
    cdef object view                # a memoryview of what is being sent: while it waits, the buffer must stay
    cdef Py_ssize_t progress        # for `attempt`: bytes sent, attempts made
    cdef int event                  # what it waits for: POLLER_READ or POLLER_WRITE
    cdef int fd                     # that it waits at
    cdef bint keeps                 # the socket is Python's own: its descriptor may stay registered afterwards
    cdef bint pauses                # it has not to wait for the socket, but to let others have their turn
    cdef Stage stage
    cdef Future waiter              # what is awaited while it waits
    cdef Handle handle              # its callback, where it waits through add_reader() or add_writer(); else None
    cdef object entry               # what the poller had for `fd` then
    cdef tuple origin               # where it was made, in debug mode; else None

    cdef int begin(self) except -1
    cdef int retry(self) except -1
    cdef int wait(self) except -1
    cdef int wait_by_callback(self) except -1
    cdef int stop_waiting(self) except -1
    cdef int end(self) except -1
    cdef int wake(self) except -1
    cdef int doubt_registration(self) except -1


cdef SocketOperation new_operation(
    LoopCore loop, str name, attempt_function attempt, int event, object sock, object argument, object other
)
