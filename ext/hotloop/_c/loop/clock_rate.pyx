"""How long a tick of clock_ticks() is: from a short measurement at first, then better the longer the process runs."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "system/clock.h":
    int64_t clock_nanoseconds()
    uint64_t clock_ticks()
    void clock_both(int64_t *nanoseconds, uint64_t *ticks)
    uint64_t clock_ticks_per_slice(int64_t nanoseconds)

cdef uint64_t slice_ticks = clock_ticks_per_slice(SLICE)
# The time at which this module was loaded, by both clocks.
cdef int64_t loaded_nanoseconds
cdef uint64_t loaded_ticks
clock_both(&loaded_nanoseconds, &loaded_ticks)


cdef uint64_t ticks_in_a_slice() noexcept:
    """0: the counter is not to be trusted."""
    return slice_ticks


cdef double nanoseconds_in_a_tick() noexcept:
    """0: the counter is not to be trusted."""
    cdef uint64_t before, after
    cdef int64_t passed
    cdef double first, rate
    if slice_ticks == 0:
        return 0
    first = <double>SLICE / <double>slice_ticks
    before = clock_ticks()
    passed = clock_nanoseconds() - loaded_nanoseconds
    after = clock_ticks()
    if passed < 20 * SLICE or after - before > slice_ticks // 10:
        return first
    rate = <double>passed / <double>(before - loaded_ticks)
    # The two clocks may disagree on whether time passed while the machine slept.
    return rate if 0.98 * first < rate < 1.02 * first else first
