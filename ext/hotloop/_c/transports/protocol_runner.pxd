from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.poller.watcher cimport Watcher


# The steps for which a transport queues itself apart from events; the start always runs before the end.
cdef enum:
    STEP_START = 1                  # reading begins
    STEP_CONNECTION_LOST = 2        # connection_lost() is called


cdef class ProtocolRunner(Watcher):
    cdef LoopCore loop              # None after connection_lost()
    cdef object protocol            # None after connection_lost()
    cdef object context             # all of the protocol's callbacks run in it
    cdef int events                 # POLLER_READ, POLLER_WRITE and POLLER_MORE reported and not yet handled
    cdef bint queued                # on the ready queue, because of these events
    cdef int running                # POLLER_READ, POLLER_WRITE: what is under way, and may run the loop in a callback
    cdef int withdrawn              # so many entries on the ready queue do nothing: they are before its other ones
    cdef int due_steps              # bits STEP_: the transport is on the ready queue once more for each
    cdef object waiter              # the future to resolve when the transport has started, or None
    cdef object error               # the argument of the connection_lost() that is due
    cdef bint started               # reading may begin: connection_made() was called
    cdef bint paused                # by pause_reading()
    cdef bint closing               # close() or abort() was called, or the connection is broken
    cdef Py_ssize_t lost            # not 0: connection_lost() is due or was called; counts the writes since

    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1
    cdef int start(self) except -1
    cdef int start_and_notify(self, object waiter) except -1
    cdef int queue_end(self, object error) except -1
    cdef bint step_is_next(self) noexcept
    cdef int run_step(self) except -1
    cdef int report_again(self) except -1
    cdef int handle_events(self, int events) except -1
    cdef bint offer_write(self) except -1
    cdef int withdraw_offer(self) except -1
    cdef int run_nested(self, int events) except -1
    cdef int begin_reading(self) except -1
    cdef int rearm(self, int events) noexcept
    cdef int ready_to_read(self) except -1
    cdef int ready_to_write(self) except -1
    cdef int connection_lost(self, object error) except -1


cdef object enter_or_copy(object context)
