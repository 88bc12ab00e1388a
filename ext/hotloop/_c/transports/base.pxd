from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.poller.watcher cimport Watcher


# How many writes to a lost connection asyncio takes before it logs a warning for each.
cdef Py_ssize_t SILENT_LOST_WRITES


# The steps for which a transport queues itself apart from events; the start always runs before the end.
cdef enum:
    STEP_START = 1                  # reading begins
    STEP_CONNECTION_LOST = 2        # connection_lost() is called


cdef class Transport(Watcher):
    cdef object attributes          # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef LoopCore loop              # None after connection_lost()
    cdef object protocol            # None after connection_lost()
    cdef object context             # all of the protocol's callbacks run in it
    cdef dict extra                 # the answers of get_extra_info() known so far; may be None
    cdef int fd                     # -1: closed, or not opened
    cdef int closed_fd              # the number that fd had, shown by a closed transport
    cdef int events                 # POLLER_READ, POLLER_WRITE and POLLER_MORE reported and not yet handled
    cdef bint queued                # on the ready queue, because of these events
    cdef int running                # POLLER_READ, POLLER_WRITE: what is under way, and may run the loop in a callback
    cdef bint read_deferred         # a read among these events waits for the next turn
    cdef int due_steps              # bits STEP_: the transport is on the ready queue once more for each
    cdef object waiter              # the future to resolve when the transport has started, or None
    cdef object error               # the argument of the connection_lost() that is due
    cdef bint attached              # this transport has registered the descriptor with the poller
    cdef bint started               # reading may begin: connection_made() was called
    cdef bint paused                # by pause_reading()
    cdef bint closing               # close() or abort() was called, or the connection is broken
    cdef Py_ssize_t lost            # not 0: connection_lost() is due or was called; counts the writes since
    cdef bint protocol_paused       # pause_writing() was called, and resume_writing() not yet
    cdef Py_ssize_t high_water      # in bytes
    cdef Py_ssize_t low_water       # in bytes
    cdef int metrics_kind           # the METRICS_ kind under which it counts as open; 0: none
    cdef tuple limits               # (low, high) as the caller gave them; None: the defaults

    cdef int open(self, LoopCore loop, object protocol, object context, object waiter) except -1
    cdef int start_and_notify(self, object waiter) except -1
    cdef int start(self) except -1
    cdef bint step_is_next(self) noexcept
    cdef int run_step(self) except -1
    cdef int handle_events(self, int events) except -1
    cdef int offer_write(self) except -1
    cdef int run_nested(self, int events) except -1
    cdef int begin_reading(self) except -1
    cdef int end_reading(self) except -1
    cdef int ready_to_read(self) except -1
    cdef int ready_to_write(self) except -1
    cdef int release_resources(self) except -1
    cdef int close_dropped(self) except -1
    cdef int release_dropped(self) except -1
    cdef int stop_watching(self) except -1
    cdef int discard_unsent(self) except -1
    cdef int flush_early(self) except -1
    cdef Py_ssize_t unsent_bytes(self) noexcept
    cdef object find_extra(self, str name, object default)
    cdef int maybe_pause_protocol(self) except -1
    cdef int maybe_resume_protocol(self) except -1
    cdef int set_limits(self, object high, object low) except -1
    cdef int fatal_error(self, object error, str message) except -1
    cdef int force_close(self, object error) except -1
    cdef int schedule_connection_lost(self, object error) except -1
    cdef int connection_lost(self, object error) except -1
    cdef int count_lost_write(self) except -1
    cdef int is_open(self) noexcept
    cdef int count_as(self, int kind) noexcept


cdef Py_ssize_t as_size(object limit) except? -1
cdef object os_error(Py_ssize_t error)
cdef object enter_or_copy(object context)
