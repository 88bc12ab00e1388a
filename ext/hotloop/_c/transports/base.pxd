from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.transports.protocol_runner cimport ProtocolRunner


# How many writes to a lost connection asyncio takes before it logs a warning for each.
cdef Py_ssize_t SILENT_LOST_WRITES


cdef class Transport(ProtocolRunner):
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef dict extra                 # the answers of get_extra_info() known so far; may be None
    cdef int fd                     # -1: closed, or not opened
    cdef int closed_fd              # the number that fd had, shown by a closed transport
    cdef bint attached              # this transport has registered the descriptor with the poller
    cdef bint protocol_paused       # pause_writing() was called, and resume_writing() not yet
    cdef Py_ssize_t high_water      # in bytes
    cdef Py_ssize_t low_water       # in bytes
    cdef int metrics_kind           # the METRICS_ kind under which it counts as open; 0: none
    cdef Py_ssize_t largest_read    # how many bytes a read asks for at most: max_size, but no more than READ_SIZE
    cdef tuple limits               # (low, high) as the caller gave them; None: the defaults

    cdef int warn_unclosed(self) except -1
    cdef int end_reading(self) except -1
    cdef int release_resources(self) except -1
    cdef int close_dropped(self) except -1
    cdef int release_dropped(self) except -1
    cdef int stop_watching(self) except -1
    cdef int discard_unsent(self) except -1
    cdef int flush_early(self) except -1
    cdef Py_ssize_t unsent_bytes(self) noexcept
    cdef object find_extra(self, str name, object default)
    cdef int replace_protocol(self, object protocol) except -1
    cdef int maybe_pause_protocol(self) except -1
    cdef int maybe_resume_protocol(self) except -1
    cdef int set_limits(self, object high, object low) except -1
    cdef int fatal_error(self, object error, str message) except -1
    cdef int force_close(self, object error) except -1
    cdef int schedule_connection_lost(self, object error) except -1
    cdef int count_lost_write(self) except -1
    cdef bint is_open(self) noexcept
    cdef int count_as(self, int kind) noexcept


cdef int report_error(LoopCore loop, Transport transport, str message, object error) except -1
cdef Py_ssize_t as_size(object limit) except? -1
