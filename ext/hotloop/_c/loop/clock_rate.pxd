from libc.stdint cimport uint64_t


cdef enum:
    SLICE = 100_000                 # the time slice, in nanoseconds: how long queued work may put off the next poll

cdef uint64_t ticks_in_a_slice() noexcept
cdef double nanoseconds_in_a_tick() noexcept
