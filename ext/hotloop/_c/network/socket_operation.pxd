from cpython.object cimport PyObject

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.tasks.future cimport Future

cdef class SocketOperation

# One attempt: a new reference to the result, or NULL without an exception if the socket is not ready.
ctypedef PyObject *(*attempt_function)(SocketOperation) except? NULL


cdef enum Stage:
    CREATED
    RUNNING                         # in the middle of an attempt
    WAITING
    CLOSED                          # done, failed or closed


cdef class SocketOperation:
    cdef object __weakref__
    cdef LoopCore loop
    cdef str name                   # of the loop's method
    cdef attempt_function attempt
    cdef object sock
    cdef object argument            # the method's first argument after the socket
    cdef object second_argument     # the method's second argument, if it has one
    cdef object view                # a memoryview of the data to send: keeps the buffer while the operation waits
    cdef Py_ssize_t progress        # for `attempt`: bytes sent, or attempts made
    cdef int event                  # POLLER_READ or POLLER_WRITE: what to wait for
    cdef int fd                     # the socket's descriptor
    cdef bint may_register          # the socket is Python's own: its descriptor may stay registered afterwards
    cdef bint yields_once           # the next wait is for one iteration of the loop, not for the socket
    cdef Stage stage
    cdef Future waiter              # the future that the operation yielded last
    cdef Handle handle              # while it waits by add_reader() or add_writer(): the callback; else None
    cdef object callback_entry      # the poller's entry for `fd` with that callback
    cdef object shown               # a coroutine that was made to show its frame; None: no tool has asked
    cdef tuple origin               # cr_origin, in debug mode; else None

    cdef int check_usable(self) except -1
    cdef int check_socket(self) except -1
    cdef int resume(self) except -1
    cdef int wait_for_socket(self) except -1
    cdef int wait_by_callback(self, bint again) except -1
    cdef int stop_waiting(self) except -1
    cdef int remove_callback(self) except -1
    cdef int end(self) except -1
    cdef int drop_references(self) noexcept


cdef SocketOperation new_operation(
    LoopCore loop, str name, attempt_function attempt, int event, object sock, object argument, object second_argument
)
